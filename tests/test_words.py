"""One word, one meaning: what stands in SQL is what stands in Python."""

import ast
import re
from pathlib import Path

import pytest

from django_pgqueue.db.queries import PACKAGE, files
from django_pgqueue.jobs.actions import SkipReason
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.states import DeathReason, EntryKind, StageStatus, Status, WorkflowStatus
from tests import prose
from tests.prose import places, surplus

GONE = re.compile(
    r"whoever|somebody|nobody|anybody|everybody|someone|anyone|\bso[ _]many(?![a-z])"  # the actor, the number
    r"|\b(pump|requeue|tombstone|twin(?!e\b)|crew|steward)|(\b|_)verbs?(\b|_)",
    re.IGNORECASE,
)
"""Words that do not come back: a sentence names its actor and its number; the rest was renamed."""

WRITTEN = {".css", ".html", ".js", ".json", ".md", ".po", ".py", ".sql", ".svg", ".yml"}
OTHERS_WRITE = {"_build", "var", "__pycache__", "uplot"}
ALLOWED = {Path("tests/support/pgbouncer.py"), Path("tests/test_words.py")}  # names a user of the system; this one


def test_status_literals_in_sql_are_known():
    for path in files().values():
        text = re.sub(r"--.*", "", path.read_text())
        for literal in re.findall(r"status\s*(?:=|<>)\s*'(\w+)'", text):
            assert literal in {*Status, *WorkflowStatus, *StageStatus}, f"{path.name}: {literal}"


def test_reason_literals_in_sql_are_known():
    for path in files().values():
        for literal in re.findall(r"reason\s*(?:=|<>)\s*'(\w+)'", path.read_text()):
            assert literal in set(DeathReason), f"{path.name}: {literal}"


def test_kinds_of_entries_in_sql_are_known():
    for path in files().values():
        for literal in re.findall(r"'kind',\s*'(\w+)'", path.read_text()):
            assert literal in set(EntryKind), f"{path.name}: {literal}"


def test_reasons_for_skipping_in_sql_are_known():
    spelled = re.findall(r"(?:THEN|ELSE) '(\w+)'", files()["explain_skipped"].read_text())
    assert spelled
    assert set(spelled) <= set(SkipReason)


def test_every_statement_has_a_header_and_a_caller():
    python = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    chosen_by_sql = files()["find_unique_conflicts"].read_text()
    for path in files().values():
        assert path.read_text().startswith("-- "), path.name
        assert f'"{path.stem}"' in python or f"'{path.stem}'" in chosen_by_sql, f"{path.name} is not used"


def test_every_caller_that_a_header_names_is_there():
    python = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    for path in files().values():
        header = " ".join(line[2:] for line in path.read_text().splitlines() if line.startswith("--"))
        for module, function in re.findall(r"\b(\w+)\.(\w+)\(\)", header):
            named = [
                text
                for path, text in python.items()
                if module in (path.stem, path.parent.name) or re.search(rf"^class {module}\b", text, re.MULTILINE)
            ]
            assert any(f"def {function}(" in text for text in named), f"{path.name}: {module}.{function}()"


def test_choices_of_the_models_are_the_words():
    assert [value for value, _ in Job._meta.get_field("status").choices] == list(Status)
    assert [value for value, _ in DeadJob._meta.get_field("reason").choices] == list(DeathReason)


def test_no_sql_is_built_by_formatting():
    for path in PACKAGE.rglob("*.py"):
        assert not re.search(r'f"[^"]*\b(SELECT|INSERT|UPDATE|DELETE)\b', path.read_text()), path


def test_no_clock_of_a_worker_decides_anything():
    """Instants come from the database; what waits or measures uses a clock that is never set.

    The date in a header of HTTP is by the clock of the world, which only this machine tells.
    """
    rooms = ("db", "flow", "jobs", "results", "schedules", "maintenance", "worker")
    for path in [*PACKAGE.glob("*.py"), *(path for room in rooms for path in (PACKAGE / room).rglob("*.py"))]:
        asked = re.findall(
            r"\btime\.time\b|\b(?:now|today|utcnow)\((?!\))|datetime\.(?:now|today)|timezone\.now", path.read_text()
        )
        assert asked == (["time.time"] if path.name == "retry_policy.py" else []), path


def test_no_two_statements_have_the_same_name():
    assert len(files()) == len([*PACKAGE.rglob("*.sql")])


def test_nothing_names_a_folder_of_one_machine(project: Path):
    for path in PACKAGE.rglob("*.py"):
        assert "/home/" not in path.read_text()


def test_words_that_are_gone_do_not_come_back(project: Path):
    for folder in ("django_pgqueue", "docs", "tests", "benchmarks", "example_project"):
        for path in (project / folder).rglob("*"):
            place = path.relative_to(project)
            if path.suffix in WRITTEN and place not in ALLOWED and OTHERS_WRITE.isdisjoint(place.parts):
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    assert not GONE.search(line), f"{place}:{number}: {line.strip()}"


def test_no_module_begins_with_an_indirect_question(project: Path):
    for folder in ("django_pgqueue", "docs", "tests", "benchmarks", "example_project"):
        for path in (project / folder).rglob("*.py"):
            place = path.relative_to(project)
            if OTHERS_WRITE.isdisjoint(place.parts):
                title = ast.get_docstring(ast.parse(path.read_text())) or ""
                assert not re.match(r"(What|Which|How|Whether|Where|Who|When|Why|That|Whose)\b", title), (
                    f"{place}: {title}"
                )


def test_prose_gets_no_further_from_plain_english():
    """In the docs, in texts and in docstrings; ``python -m tests.prose`` lists the places."""
    assert surplus(places(prose.files())) == []


@pytest.mark.parametrize(
    ("said", "patterns"),
    [
        ("The list shows what is due.", ["what as a noun"]),
        ("What is due?", []),
        ("Is it 0, see the log.", ["inverted conditional"]),
        ("Is it 0? See the log.", []),
        ("It is to be mended anew.", ["archaic word", "mend", "is to be"]),
        ("If it fails, fix it; `what is due` and code are left out.\n```\nwhatever\n```\n", []),
        ("Besides, a job that tells nothing stands in line for ever.", ["for ever", "beside", "tell", "stand"]),
    ],
)
def test_patterns_of_prose_are_found(said, patterns, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(said)
    assert [place.pattern for place in places([page])] == patterns
