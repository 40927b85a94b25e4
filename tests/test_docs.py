"""What the pages say is what the code does: each list in docs/reference is compared with what it lists."""

import argparse
import ast
import dataclasses
import datetime as dt
import functools
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management.base import CommandParser
from django.db.models import CheckConstraint
from django.dispatch import Signal
from django.test import override_settings

import django_pgqueue
import pytest_django_pgqueue
from django_pgqueue import testing
from django_pgqueue.backend.declaring import OF_BACKENDS, OF_JOBS, OF_TASKS
from django_pgqueue.base import exceptions, records, signals
from django_pgqueue.base.conf import DEFAULTS
from django_pgqueue.base.database_errors import REFUSING_CLASSES
from django_pgqueue.base.options import LONGEST_DELAY, LONGEST_TIMEOUT_SECONDS, Options
from django_pgqueue.base.states import Reason, Status
from django_pgqueue.checks import OF_FINDINGS, check_settings
from django_pgqueue.cutover.management.commands.pgqueue_cutover import Command as CutoverCommand
from django_pgqueue.cutover.models import Call
from django_pgqueue.cutover.stages import STAGES
from django_pgqueue.management.commands import pgqueue_doctor
from django_pgqueue.management.commands.pgqueue_doctor import Command as DoctorCommand
from django_pgqueue.management.commands.pgqueue_jobs import Command as JobsCommand
from django_pgqueue.management.commands.pgqueue_queues import Command as QueuesCommand
from django_pgqueue.management.commands.pgqueue_retention import Command as RetentionCommand
from django_pgqueue.management.commands.pgqueue_schedule import Command as ScheduleCommand
from django_pgqueue.management.commands.pgqueue_worker import Command
from django_pgqueue.migrations._enqueue import WITH_KEYS
from django_pgqueue.models import DeadJob, FinishedJob, Job, Schedule, Worker
from django_pgqueue.staff import health
from django_pgqueue.testing import Report, Run, assert_enqueued, refute_enqueued, run_jobs

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = Path(django_pgqueue.__file__).parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts),
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def blocks(text: str, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def reference(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text()


def section(text: str, heading: str) -> str:
    """Return what stands below a heading, up to the next one of its rank or a higher one; without code."""
    _, found, rest = without_blocks(f"\n{text}").partition(f"\n{heading}\n")
    assert found, f"no heading {heading!r}"
    return re.split(rf"^#{{1,{heading.count('#')}}} ", rest, flags=re.MULTILINE)[0]


def table(text: str) -> list[list[str]]:
    """Return the rows of the tables in a text, without their heads."""
    rows, is_body = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            is_body = False
        elif set(line) <= set("|- "):
            is_body = True
        elif is_body:
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def first_names(text: str) -> list[str]:
    """Return the names in the first column of the tables in a text."""
    return [name for row in table(text) for name in names(row[0])]


def slug(heading: str) -> str:
    """Return the anchor that GitHub and MyST give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# The pages themselves


@each_page
def test_python_on_the_page_compiles(page):
    for block in blocks(page.read_text(), "python"):
        compile(block, name_of(page), "exec")


@each_page
def test_names_that_the_page_imports_from_the_package_exist(page):
    for block in blocks(page.read_text(), "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "django_pgqueue":
                module = importlib.import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


@each_page
def test_page_imports_what_is_public_from_the_package_itself(page):
    for block in blocks(page.read_text(), "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django_pgqueue."):
                assert not {alias.name for alias in node.names} & set(django_pgqueue.__all__), node.module


@pytest.mark.parametrize(
    "page", [DOCS / "explanation" / "life-of-a-job.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_files_that_the_page_names_are_there(page):
    named = set(re.findall(r"\b[\w/]+\.py\b", page.read_text()))
    assert named
    there = {str(path.relative_to(PACKAGE.parent)) for part in (PACKAGE, ROOT / "tests") for path in part.rglob("*.py")}
    for name in named:
        assert any(path == name or path.endswith(f"/{name}") for path in there), name


@each_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page.read_text())):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        destination = (page.parent / path).resolve() if path else page
        assert destination.is_file(), f"{target} is not there"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", destination.read_text(), flags=re.MULTILINE)
            assert anchor in map(slug, headings), f"{target} has no such heading"


def test_map_of_the_index_has_every_page_below_the_same_heading():
    tables, _, drawn = (DOCS / "index.md").read_text().partition("## Map")
    listed = re.findall(r"^:caption: '?(.*?)'?\n:hidden:\n\n(.*?)\n```$", tables, flags=re.DOTALL | re.MULTILINE)
    mapped = re.findall(r"^(\S[^\n]*)\n: (.*?)(?=\n\n|\Z)", drawn, flags=re.DOTALL | re.MULTILINE)
    assert {heading: pages.split() for heading, pages in listed} == {
        heading: re.findall(r"\(([\w/-]+)\.md\)", links) for heading, links in mapped
    }


def test_promise_is_worded_alike_wherever_it_stands():
    stands_in = [ROOT / "README.md", DOCS / "index.md", DOCS / "explanation" / "promise.md"]
    quotes = {
        " ".join(line.removeprefix(">").strip() for line in page.read_text().splitlines() if line.startswith(">"))
        for page in stands_in
    }
    assert len(quotes) == 1
    assert quotes.pop().startswith("A committed job runs at least once")


def test_docs_build_without_a_warning(tmp_path):
    """Takes a few seconds; needs neither network nor database."""
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "trees", DOCS, tmp_path / "html"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "html" / "tutorial" / "first-job.html").exists()


# Settings


def settings_rows() -> dict[str, list[str]]:
    return {names(row[0])[0]: row[1:] for row in table(reference("settings")) if names(row[0])}


def test_settings_page_lists_every_key_with_its_default():
    documented = {key: ast.literal_eval(names(row[0])[0]) for key, row in settings_rows().items()}
    assert documented == DEFAULTS
    assert {key: type(value) for key, value in documented.items()} == {
        key: type(value) for key, value in DEFAULTS.items()
    }


@pytest.mark.parametrize("key", DEFAULTS)
def test_settings_page_tells_what_each_key_does(key):
    assert section(reference("settings"), f"## {key}").strip()


def ranges() -> dict[str, tuple[float, float]]:
    found = {key: re.fullmatch(r"([\d.]+) to ([\d.]+)", row[2]) for key, row in settings_rows().items()}
    return {key: (ast.literal_eval(match[1]), ast.literal_eval(match[2])) for key, match in found.items() if match}


def test_settings_page_gives_a_range_for_every_number():
    numbers = {key for key, value in DEFAULTS.items() if type(value) in (int, float)}
    assert set(ranges()) == numbers


@pytest.mark.parametrize("key", [key for key, value in DEFAULTS.items() if type(value) in (int, float)])
def test_ranges_on_the_settings_page_are_those_of_the_check(key):
    def is_fine(value: float) -> bool:
        with override_settings(PGQUEUE={key: value}):
            return not check_settings()

    lowest, highest = ranges()[key]
    step = 1 if isinstance(lowest, int) else lowest / 2
    assert is_fine(lowest)
    assert is_fine(highest)
    assert not is_fine(lowest - step)
    assert not is_fine(highest + 1)


# Tasks and errors

ONLY_OF_USING = {"run_at", "metadata", "database", "unique_key", "fair_key"}
BY = {"unique_by", "concurrency_by", "fair_by"}


def test_tasks_page_lists_every_option():
    page = reference("tasks")
    options = [field.name for field in dataclasses.fields(Options)]
    of_task = {*options, "name", "backoff", "atomic", "aliases", "sensitive", *BY} - ONLY_OF_USING
    assert sorted(first_names(section(page, "## @task"))) == sorted(of_task)
    assert sorted(first_names(section(page, "### Options of using"))) == sorted(options)


def test_defaults_of_options_on_the_tasks_page_are_those_of_the_code():
    rows = table(section(reference("tasks"), "## @task"))
    documented = {names(row[0])[0]: names(row[1]) for row in rows}
    for field in dataclasses.fields(Options):
        if field.name not in ONLY_OF_USING:
            assert [ast.literal_eval(text) for text in documented[field.name]] == [field.default], field.name


def test_limits_of_durations_on_the_tasks_page_are_those_of_the_code():
    page = reference("tasks")
    rows = {names(row[0])[-1]: row[2] for row in table(page) if len(row) > 2 and names(row[0])}
    assert dt.timedelta(seconds=LONGEST_TIMEOUT_SECONDS) == dt.timedelta(days=365)
    assert "a year (365 days) at most" in rows["timeout"]
    assert "a year at most" in rows["lease"]
    assert f"{LONGEST_DELAY.days} days at most" in rows["run_at"]


def test_tasks_page_lists_every_error():
    errors = [name for name, value in vars(exceptions).items() if is_own_error(value)]
    control = {"Discard", "RetryLater"}
    assert sorted(first_names(section(reference("tasks"), "## Errors"))) == sorted({*errors} - control)


def is_own_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == exceptions.__name__


@pytest.mark.parametrize("name", django_pgqueue.__all__)
def test_tasks_page_names_everything_public(name):
    assert re.search(rf"\b{name}\b", reference("tasks"))


# The worker command


def worker_options() -> dict[str, argparse.Action]:
    parser = CommandParser(add_help=False)
    Command().add_arguments(parser)
    return {action.option_strings[0]: action for action in parser._actions if action.help != argparse.SUPPRESS}


def test_worker_page_lists_every_option_with_its_default():
    rows = {names(row[0])[0]: row[1] for row in table(reference("worker-command")) if row[0].startswith("`--")}
    rows.pop("--verbosity", None)
    assert set(rows) == set(worker_options())
    for option, action in worker_options().items():
        if action.default is None:
            assert rows[option] == "with `DEBUG`", option
        elif action.default not in (False, ""):
            default = action.default
            assert names(rows[option]) == [default if isinstance(default, str) else f"{default:g}"], option
        else:
            assert rows[option] in {"off", "empty", "all"}, option


# Helpers for tests


@pytest.mark.parametrize("helper", [assert_enqueued, refute_enqueued, run_jobs], ids=lambda helper: helper.__name__)
def test_testing_page_lists_every_argument_with_its_default(helper):
    page = reference("testing")
    taken = inspect.signature(helper).parameters
    if helper is refute_enqueued:
        assert {*taken, "count"} == set(inspect.signature(assert_enqueued).parameters)
        return
    rows = {
        names(row[0])[0]: ast.literal_eval(names(row[1])[0]) for row in table(section(page, f"## {helper.__name__}"))
    }
    assert rows == {name: parameter.default for name, parameter in taken.items()}


def test_testing_page_lists_everything_of_the_report():
    page = reference("testing")
    properties = {name for name, value in vars(Report).items() if isinstance(value, property)}
    assert set(first_names(section(page, "## The report"))) == {"runs", *properties} | set(of_runs := fields_of(Run))
    assert first_names(section(page, "### A run")) == of_runs
    assert all(name in page or f"a {name.lower()}" in page for name in testing.__all__)


def fields_of(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def test_testing_page_names_what_the_plugin_has():
    page = reference("testing")
    code = inspect.getsource(pytest_django_pgqueue)
    found = re.findall(r"^@pytest\.fixture\ndef (\w+)", code, flags=re.MULTILINE)
    assert first_names(section(page, "## The plugin for pytest")) == found
    for name in (pytest_django_pgqueue.OPTION, pytest_django_pgqueue.INI, pytest_django_pgqueue.MARKER):
        assert name in page


# The commands for queues and schedules


@pytest.mark.parametrize(
    ("page", "command"), [("queues-command", QueuesCommand), ("schedule-command", ScheduleCommand)]
)
def test_page_of_the_command_lists_every_verb_and_option(page, command):
    parser = CommandParser(add_help=False)
    command().add_arguments(parser)
    taken = dict(parser._actions[-1].choices)
    options = {option for verb in taken.values() for action in verb._actions for option in action.option_strings[:1]}
    assert sorted(first_names(reference(page))) == sorted({*taken, *options} - {"-h"})


def test_page_of_the_app_for_switching_lists_stages_options_and_columns():
    page = reference("cutover")
    assert first_names(section(page, "## The flag")) == list(STAGES)
    parser = CommandParser(add_help=False)
    CutoverCommand().add_arguments(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    assert options <= set(first_names(section(page, "## manage.py pgqueue_cutover")))
    columns = {field.column for field in Call._meta.fields}
    assert sorted(first_names(section(page, "## pgqueue_cutover_calls"))) == sorted(columns)


@pytest.mark.parametrize(
    ("page", "command"), [("retention-command", RetentionCommand), ("doctor-command", DoctorCommand)]
)
def test_page_of_the_command_lists_every_option(page, command):
    parser = CommandParser(add_help=False)
    command().add_arguments(parser)
    options = [action.option_strings[0] for action in parser._actions]
    assert sorted(first_names(reference(page))) == sorted(options)


# The jobs command


def jobs_parser() -> CommandParser:
    parser = CommandParser(add_help=False)
    JobsCommand().add_arguments(parser)
    return parser


def verbs() -> dict[str, argparse.ArgumentParser]:
    return dict(jobs_parser()._actions[-1].choices)


def test_jobs_page_lists_every_verb():
    assert sorted(first_names(reference("jobs-command").partition("\n## ")[0])) == sorted([*verbs(), "--database"])


def test_jobs_page_lists_every_option_and_those_of_enqueue_with_their_ranges():
    page = reference("jobs-command")
    told = {name for name in first_names(page) if name.startswith("--")}
    taken = {
        option: action
        for parser in verbs().values()
        for action in parser._actions
        for option in action.option_strings[:1]
        if action.help != argparse.SUPPRESS
    }
    assert told == set(taken) - {"-h"}
    rows = {names(row[0])[0]: row for row in table(section(page, "## enqueue"))}
    of_enqueue = {action.option_strings[0]: action for action in verbs()["enqueue"]._actions if action.option_strings}
    assert set(rows) == {name for name, action in of_enqueue.items() if action.help != argparse.SUPPRESS} - {
        "-h",
        "--database",
    }
    for name, action in of_enqueue.items():
        if action.choices and name in rows:
            assert names(rows[name][2]) == list(action.choices)


@functools.cache
def logged() -> list[tuple[str, str]]:
    """Return level and text of every log line in the package."""
    levels = {"info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}
    return [
        (levels[node.func.attr], node.args[0].value)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in levels
        if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    ]


def test_log_lines_on_the_worker_page_are_in_the_code():
    for beginnings, level, *_ in table(section(reference("worker-command"), "### What the lines say")):
        for beginning in names(beginnings):
            pattern = r"%\w".join(re.escape(part) for part in beginning.split("…"))
            found = {known for known, text in logged() if re.match(pattern, text)}
            assert found == {level}, beginning


# Statuses, checks, signals, tables


def test_statuses_page_lists_every_status_and_reason():
    page = reference("statuses")
    assert sorted(first_names(section(page, "## Statuses"))) == sorted(Status)
    assert sorted(first_names(section(page, "## Reasons"))) == sorted(Reason)


def test_page_of_the_framework_lists_every_option():
    listed = {row[0]: set(names(row[1])) for row in table(section(reference("django-tasks"), "## Options"))}
    assert (listed["of jobs"], listed["of tasks"]) == (OF_JOBS, OF_TASKS)
    assert (OF_JOBS | OF_TASKS | {"database"}) - {"aliases", "unique_key"} == OF_BACKENDS


def test_checks_page_lists_every_id():
    code = "".join((PACKAGE / path).read_text() for path in ("checks.py", "backend/checking.py"))
    ids = {*re.findall(r'id="(pgqueue\.[EW]\d+)"', code), *OF_FINDINGS.values()}
    assert len(ids) > len(set(OF_FINDINGS.values()))
    assert sorted(first_names(reference("checks"))) == sorted(ids)


def names_found_by(looks: Iterable[Callable]) -> set[str]:
    """Return what stands as the name of a finding in the modules of these looks."""
    code = {inspect.getmodule(look): inspect.getsource(inspect.getmodule(look)) for look in looks}
    return {name for text in code.values() for name in re.findall(r'\bname="([a-z-]+)"', text)}


def test_findings_page_lists_every_finding_and_those_of_the_doctor_apart():
    page = reference("findings")
    of_panel = names_found_by(health.LOOKS) | {health.NOT_LOOKED_AT}
    of_doctor = names_found_by(set(health.ALL_LOOKS) - set(health.LOOKS))
    assert len(of_panel) + len(of_doctor) > 25
    assert not of_panel & of_doctor
    assert sorted(first_names(page.partition("\n## ")[0])) == sorted(of_panel)
    assert sorted(first_names(section(page, "## By pgqueue_doctor alone"))) == sorted(of_doctor)
    assert set(OF_FINDINGS) <= of_panel


def test_levels_on_the_findings_page_are_those_of_the_code():
    """Those that have one level only; of the others the page says when it is which."""
    rows = {names(row[0])[0]: row[1] for row in table(reference("findings")) if row[1] in {"error", "warning"}}
    code = "".join(inspect.getsource(module) for module in map(inspect.getmodule, health.ALL_LOOKS))
    levels = dict(re.findall(r'\bname="([a-z-]+)",\n\s+level=Level\.(\w+),', code))
    assert len(rows) > 20
    assert {name: levels[name].lower() for name in rows if name != health.NOT_LOOKED_AT} == {
        name: level for name, level in rows.items() if name != health.NOT_LOOKED_AT
    }


def test_exit_codes_on_the_doctors_page_are_those_of_the_code():
    rows = table(section(reference("doctor-command"), "## Exit codes"))
    assert [row[0] for row in rows] == ["0", str(pgqueue_doctor.FOUND), str(pgqueue_doctor.COULD_NOT_LOOK)]


def test_signals_page_lists_every_signal():
    sent = {name for name, value in vars(signals).items() if isinstance(value, Signal)}
    assert set(first_names(reference("signals").partition("\n## ")[0])) == sent


def test_signals_page_lists_what_receivers_get():
    page = reference("signals")
    assert sorted(first_names(section(page, "## job"))) == sorted({*records.ClaimedJob._fields, "priority"} - {"rank"})
    outcome = [field.name for field in dataclasses.fields(records.Outcome)]
    assert sorted(first_names(section(page, "## outcome"))) == sorted(outcome)
    assert {fate.name for fate in records.Fate} <= set(names(page.replace("```", "")))


def test_tables_page_lists_every_table():
    tables = {model._meta.db_table for model in apps.get_app_config("django_pgqueue").get_models()}
    rows = table(reference("tables").partition("\n## ")[0])
    assert {names(row[0])[0] for row in rows} == tables


@pytest.mark.parametrize("model", [Job, Schedule, Worker], ids=lambda model: model.__name__)
def test_tables_page_names_every_column(model):
    text = section(reference("tables"), f"## {model._meta.db_table}")
    documented = set(names(text.replace("```", "")))
    assert {field.column for field in model._meta.fields} <= documented


@pytest.mark.parametrize("model", [DeadJob, FinishedJob], ids=lambda model: model.__name__)
def test_tables_page_names_the_columns_that_a_live_job_has_not(model):
    documented = set(names(section(reference("tables"), f"## {model._meta.db_table}")))
    live = {field.column for field in Job._meta.fields}
    assert {field.column for field in model._meta.fields} - live <= documented


def test_tables_page_lists_every_check_of_the_database():
    checks = {rule.name for rule in Job._meta.constraints if isinstance(rule, CheckConstraint)}
    rows = table(section(reference("tables"), "## pgqueue_jobs"))
    assert checks <= {name for row in rows for name in names(row[0])}


def test_sqlstate_classes_on_the_pages_are_those_that_the_code_blames():
    for page in (
        DOCS / "explanation" / "promise.md",
        DOCS / "explanation" / "life-of-a-job.md",
        DOCS / "reference" / "statuses.md",
    ):
        [classes] = re.findall(r"classes\s+(\d\d), (\d\d) and (\d\d)", page.read_text())
        assert set(classes) == REFUSING_CLASSES, name_of(page)


FAULTS = table((DOCS / "explanation" / "failure-modes.md").read_text())


def test_failure_modes_page_numbers_each_fault_once():
    assert sorted(int(row[0]) for row in FAULTS) == list(range(1, 48))


@pytest.mark.parametrize("number", range(1, 48))
def test_tests_that_the_failure_modes_page_names_are_there(number):
    """With their file, but for those of tests/processes/test_faults.py."""
    [row] = [row for row in FAULTS if row[0] == str(number)]
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for group in row[3].split(";"):
        [*tests, file] = names(group) if ".py`" in group else [*names(group), "test_faults.py"]
        for test in tests:
            assert f"def {test}(" in files[file], f"{test} in {file}"


@pytest.mark.parametrize("model", [Job, DeadJob], ids=lambda model: model.__name__)
def test_tables_page_names_every_index(model):
    unique = {rule.name for rule in model._meta.constraints if type(rule).__name__ == "UniqueConstraint"}
    documented = set(names(section(reference("tables"), f"## {model._meta.db_table}")))
    assert {index.name for index in model._meta.indexes} | unique <= documented


def test_sql_page_lists_every_parameter_of_the_function():
    [parameters] = re.findall(r"CREATE FUNCTION pgqueue_enqueue\((.*?)\n\) RETURNS", WITH_KEYS, flags=re.DOTALL)
    declared = re.findall(r"^\s+(\w+) \w+", parameters, flags=re.MULTILINE)
    assert first_names(section((DOCS / "how-to" / "enqueue-from-sql.md").read_text(), "## The function")) == declared
