"""The pages agree with the code: docs/generate.py writes most lists, the others are compared here."""

import ast
import dataclasses
import datetime as dt
import functools
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.dispatch import Signal
from django.test import override_settings

import django_pgqueue
import pytest_django_pgqueue
from django_pgqueue import Limit, Unique, doctor, exceptions, signals, states, testing
from django_pgqueue.backend.native_tasks import BACKEND_OPTIONS, JOB_OPTIONS, TASK_OPTIONS
from django_pgqueue.checks import OF_FINDINGS, check_settings
from django_pgqueue.conf import DEFAULTS, SETTINGS
from django_pgqueue.contrib.cutover.enqueue import STAGES
from django_pgqueue.db.errors import REFUSING_CLASSES
from django_pgqueue.db.queries import statement
from django_pgqueue.flow import queue_limits
from django_pgqueue.jobs.captured_log import FIRST_LINES, LAST_LINES
from django_pgqueue.jobs.context import LONGEST_MESSAGE
from django_pgqueue.jobs.failure import LONGEST_ERROR_BYTES
from django_pgqueue.management.commands import pgqueue_doctor, pgqueue_worker
from django_pgqueue.options import OF_CALLS, OF_TASKS, Options
from django_pgqueue.schedules import periodic
from django_pgqueue.states import LONGEST_DELAY, Status
from django_pgqueue.stored_values import DEEPEST
from django_pgqueue.testing import JobRun, RunReport, as_job, assert_enqueued, assert_not_enqueued, run_job, run_jobs
from django_pgqueue.testing.assertions import Expected, Wanted
from django_pgqueue.validation import LONGEST_TIMEOUT_SECONDS
from django_pgqueue.workflows import rerun
from docs import facts, generate
from tests.support.doc_pages import first_names, names, reference, section, table, without_blocks
from tests.support.pages import DOCS, PAGES, ROOT, blocks, each_page, name_of
from tests.support.public_names import public_names
from tests.support.waiting import LONG_PATIENCE_SECONDS

PACKAGE = Path(django_pgqueue.__file__).parent


def slug(heading: str) -> str:
    """Return the anchor that GitHub and MyST give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


NAMESPACES = ("jobs", "queues", "schedules", "workers", "workflows")


# The pages themselves


@pytest.mark.parametrize(
    "page", [DOCS / "internals" / "life-of-a-job.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_files_that_the_page_names_are_there(page):
    named = set(re.findall(r"\b[\w/]+\.py\b", page.read_text()))
    assert named
    there = {
        str(path.relative_to(PACKAGE.parent)) for part in (PACKAGE, ROOT / "tests", DOCS) for path in part.rglob("*.py")
    }
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


def test_promise_is_worded_alike_wherever_it_stands():
    stands_in = [ROOT / "README.md", DOCS / "explanation" / "guarantees.md"]
    quotes = {
        " ".join(line.removeprefix(">").strip() for line in page.read_text().splitlines() if line.startswith(">"))
        for page in stands_in
    }
    assert len(quotes) == 1
    assert quotes.pop().startswith("A committed job runs at least once")


def test_docs_build_without_a_warning(tmp_path):
    """In the plainest theme: for its sidebars Furo takes longer than all else. CI builds with it too: make docs."""
    options = ["-W", "--keep-going", "-q", "-D", "html_theme=basic", "-d", tmp_path / "trees"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, DOCS, tmp_path / "html"],
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE_SECONDS,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "html" / "tutorial" / "first-job.html").exists()
    shown = set(
        re.findall(r'id="django_pgqueue\.([\w.]+)"', (tmp_path / "html" / "reference" / "api.html").read_text())
    )
    in_tables = {name for name in public_names() if name.startswith(("signals.job_", "signals.attempt_"))}
    assert {*public_names()} - shown == {*NAMESPACES} | in_tables


# What is generated

REGIONS = [(page, *found) for page in PAGES for found in re.findall(generate.REGION, page.read_text())]
COMMANDS = [path.stem for path in sorted(PACKAGE.rglob("management/commands/pgqueue_*.py"))]


@each_page
def test_page_is_as_the_code_wants_it(page):
    assert page.read_text() == generate.rewritten(page.read_text()), "To write what the code says: make reference"


def test_package_is_installed_on_few_pages():
    """Those that are read first, or typed from the beginning; others name an extra."""
    assert {name_of(page) for page in PAGES if generate.INSTALL.search(page.read_text())} == {
        "README.md",
        "docs/tutorial/first-job.md",
        "docs/tutorial/quick-start.md",
    }


@pytest.mark.parametrize(("page", "_", "marker", "text", "__"), REGIONS, ids=lambda value: getattr(value, "name", ""))
def test_each_row_that_was_generated_is_explained(page, _, marker, text, __):
    unexplained = [row[0] for row in table(text) if not row[-1] and row[0] != "`enqueue`"]
    assert not unexplained, f"write what these are, into {name_of(page)}"


def generated(name: str) -> list[list[str]]:
    return [words for _, _, marker, *_ in REGIONS for found, *words in [marker.split()] if found == name]


def test_columns_of_every_table_are_on_a_page():
    ours = [model for label in ("pgqueue", "pgqueue_cutover") for model in apps.get_app_config(label).get_models()]
    assert {words[0] for words in generated("columns")} == {model._meta.db_table for model in ours}
    assert [words for words in generated("columns") if words[1:2] != ["but"] and len(words) > 1] == [
        ["pgqueue_jobs", "internal"],
        ["pgqueue_jobs", "public"],
    ]
    assert {row.name.strip("`") for row in facts.of_columns("pgqueue_jobs", "internal")} == facts.INTERNAL


def test_every_signal_is_on_a_page():
    sent = {name for name, value in vars(signals).items() if isinstance(value, Signal)}
    assert {name for words in generated("signals") for name in words} == sent


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_on_its_page(command):
    page = reference(f"{command.removeprefix('pgqueue_')}-command" if command != "pgqueue_cutover" else "cutover")
    taken = {option for parser in facts.parsers_of(command).values() for option, _ in facts.taken(parser)}
    assert taken <= {name for name in first_names(page) if name.startswith("-")}


# Settings


BOUNDS = {key: one.bounds for key, one in SETTINGS.items() if one.bounds}


@pytest.mark.parametrize("key", BOUNDS)
def test_values_on_the_bounds_are_fine_and_others_are_not(key):
    def is_fine(value: float) -> bool:
        with override_settings(PGQUEUE={key: value}):
            return not check_settings()

    lowest, highest = BOUNDS[key]
    step = 1 if isinstance(lowest, int) else lowest / 2
    assert is_fine(lowest)
    assert is_fine(highest)
    assert not is_fine(lowest - step)
    assert not is_fine(highest + 1)


def test_every_number_has_bounds():
    numbers = {key for key, value in DEFAULTS.items() if type(value) in (int, float)}
    assert numbers <= set(BOUNDS)


@pytest.mark.parametrize("key", DEFAULTS)
def test_settings_page_tells_what_each_key_does(key):
    assert section(reference("settings"), f"## {key}").strip()


def test_settings_page_has_the_default_list_of_sensitive_names():
    [listed] = blocks(DOCS / "reference" / "settings.md", "json")
    assert tuple(json.loads(listed)) == DEFAULTS["SENSITIVE_PARAMETERS"]


# Tasks and errors

ONLY_OF_USING = {"run_at", "delay", "metadata", "database", *OF_CALLS}


def test_tasks_page_lists_every_option():
    page = reference("tasks")
    options = [field.name for field in dataclasses.fields(Options)]
    of_task = {*OF_TASKS, "name", "takes_context"}
    assert sorted(first_names(section(page, "## @task"))) == sorted({*options, *of_task} - ONLY_OF_USING)
    assert sorted(first_names(section(page, "### Options of the task itself"))) == sorted(of_task)
    assert sorted(first_names(section(page, "### Options of using"))) == sorted(options)


def test_defaults_of_options_on_the_tasks_page_are_those_of_the_code():
    rows = table(section(reference("tasks"), "## @task"))
    documented = {names(row[0])[0]: names(row[1]) for row in rows}
    for field in dataclasses.fields(Options):
        if field.name not in ONLY_OF_USING:
            assert [ast.literal_eval(text) for text in documented[field.name]] == [field.default], field.name


@pytest.mark.parametrize("rule", [Unique, Limit])
def test_tasks_page_lists_the_arguments_of_values_with_their_defaults(rule):
    rows = table(section(reference("tasks"), f"## {rule.__name__}").partition("| key of")[0])
    documented = {names(row[0])[0]: names(row[1]) for row in rows if len(row) == 3}
    assert {name: [ast.literal_eval(one) for one in default] for name, default in documented.items()} == {
        field.name: [field.default] for field in dataclasses.fields(rule)
    }


def test_limits_of_durations_on_the_tasks_page_are_those_of_the_code():
    page = reference("tasks")
    rows = {names(row[0])[-1]: row[-1] for row in table(page) if len(row) > 2 and names(row[0])}
    assert dt.timedelta(seconds=LONGEST_TIMEOUT_SECONDS) == dt.timedelta(days=365)
    assert "a year (365 days) at most" in rows["timeout"]
    assert "a year at most" in rows["lease"]
    assert f"{LONGEST_DELAY.days} days at most" in rows["delay"]


def test_tree_of_errors_has_every_one():
    """The page of all public names shows it."""
    errors = [name for name, value in vars(exceptions).items() if is_own_error(value)]
    tree = exceptions.__doc__.partition("::")[2]
    assert sorted(re.findall(r"^\W*(\w+)(?=\n|  )", tree, re.MULTILINE)) == sorted(errors)


def is_own_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == exceptions.__name__


@pytest.mark.parametrize("name", django_pgqueue.__all__)
def test_tasks_page_names_everything_public(name):
    assert re.search(rf"\b{name}\b", reference("tasks"))


# Helpers for tests


@pytest.mark.parametrize("helper", [assert_enqueued, run_jobs, run_job, as_job], ids=lambda helper: helper.__name__)
def test_docstring_of_a_helper_explains_every_argument(helper):
    """Where the page of all public names has them from."""
    assert {*explained(helper, "Args")} == {*arguments(helper)}


def test_testing_page_names_every_argument_of_the_assertions():
    taken = arguments(assert_enqueued)
    assert {*arguments(assert_not_enqueued), "count"} == {*taken}
    assert {*taken} - {"task", "database"} <= {*names(section(reference("testing"), "## Assertions"))}


def test_testing_page_lists_every_option_of_run_jobs_with_its_default():
    rows = {names(row[0])[0]: row[1] for row in table(section(reference("testing"), "## run_jobs"))}
    taken = inspect.signature(run_jobs).parameters
    assert [*rows] == [*taken]
    for name, default in rows.items():
        written = None if default == "all" else ast.literal_eval(default.strip("`"))
        assert written == taken[name].default, name


def explained(documented: Any, heading: str) -> list[str]:
    """Return the names that a docstring explains below a heading."""
    _, _, rest = inspect.getdoc(documented).partition(f"\n{heading}:\n")
    return re.findall(r"^ {4}(\w+):", re.split(r"^\S", rest, flags=re.MULTILINE)[0], flags=re.MULTILINE)


def arguments(helper: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """Return the arguments of a helper, those that the assertions share by their names."""
    taken = dict(inspect.signature(helper).parameters)
    if taken.pop("wanted", None):
        shared = inspect.signature(Expected).parameters
        assert {*shared} == {"task", *Wanted.__annotations__}
        taken |= shared
    return taken


def test_testing_page_lists_everything_of_the_report():
    page = reference("testing")
    properties = {name for name, value in vars(RunReport).items() if isinstance(value, property)}
    assert set(first_names(section(page, "## The report"))) == {"runs", *properties}
    assert explained(JobRun, "Attributes") == (of_runs := fields_of(JobRun))
    assert {*of_runs} <= {*names(section(page, "### A run"))}
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


# The app for switching


def test_page_of_the_app_for_switching_lists_stages():
    page = reference("cutover")
    assert first_names(section(page, "## The flag")) == list(STAGES)


# Log lines


@functools.cache
def logged(*, but: tuple[Path, ...] = ()) -> list[tuple[str, str]]:
    """Return level and text of every log line in the package, without those of some folders."""
    levels = {"debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}
    return [
        (levels[node.func.attr], node.args[0].value)
        for path in PACKAGE.rglob("*.py")
        if not {*but} & {*path.parents}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in levels
        if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    ]


@functools.cache
def messages_on_the_pages() -> list[tuple[str, str, str]]:
    """Return the level of every message on the two pages, with its beginning and that as a pattern."""
    page = reference("log-messages")
    rows = [("ERROR", row[0]) for row in table(section(page, "### Errors"))]
    rows += [("WARNING", row[0]) for row in table(section(page, "### Warnings"))]
    rows += [(row[1], row[0]) for row in table((DOCS / "internals" / "log-messages.md").read_text())]
    return [
        (level, beginning, r"%\w".join(re.escape(part) for part in beginning.split("…")))
        for level, beginnings in rows
        for beginning in names(beginnings)
    ]


def test_messages_on_their_pages_are_in_the_code():
    for level, beginning, pattern in messages_on_the_pages():
        assert {known for known, text in logged() if re.match(pattern, text)} == {level}, beginning


def test_every_message_of_the_package_is_on_a_page():
    """But those of the app for switching, which has a page of its own, and of the helpers for tests."""
    known = [pattern for _, _, pattern in messages_on_the_pages()]
    elsewhere = (PACKAGE / "contrib" / "cutover", PACKAGE / "testing")
    missing = [text for _, text in logged(but=elsewhere) if not any(re.match(one, text) for one in known)]
    assert not missing


# Statuses, checks, signals, tables


def test_page_of_the_framework_lists_every_option():
    listed = {row[0]: set(names(row[1])) for row in table(section(reference("django-tasks"), "## Options"))}
    assert listed["of jobs"] == JOB_OPTIONS
    assert listed["of tasks"] == {"name"}  # all but this one; the page of tasks lists them
    of_all = {*JOB_OPTIONS, *TASK_OPTIONS} - {"aliases", *OF_CALLS}
    assert of_all | {"database", "metadata", "tasks", "task_modules"} == BACKEND_OPTIONS


def names_found_in(places: Iterable[Any]) -> set[str]:
    """Return what stands as the name of a finding in the code of these modules or looks."""
    return {name for place in places for name in re.findall(r'\bname="([a-z-]+)"', inspect.getsource(place))}


def test_findings_page_lists_every_finding_and_those_of_the_doctor_apart():
    page = reference("doctor-command")
    of_doctor = names_found_in(set(doctor.ALL_LOOKS) - set(doctor.LOOKS))
    of_all = names_found_in({inspect.getmodule(look) for look in doctor.ALL_LOOKS}) | {doctor.NOT_LOOKED_AT}
    of_panel = of_all - of_doctor
    assert len(of_all) > 25
    assert not of_doctor & names_found_in(doctor.LOOKS)
    assert sorted(first_names(section(page, "## Findings"))) == sorted(of_panel)
    assert sorted(first_names(section(page, "## Findings of the command only"))) == sorted(of_doctor)
    assert set(OF_FINDINGS) <= of_panel


def test_levels_on_the_findings_page_are_those_of_the_code():
    """Those that have one level only; of the others the page says when it is which."""
    rows = {names(row[0])[0]: row[1] for row in table(reference("doctor-command")) if row[1] in {"error", "warning"}}
    code = "".join(inspect.getsource(module) for module in map(inspect.getmodule, doctor.ALL_LOOKS))
    levels = dict(re.findall(r'\bname="([a-z-]+)",\n\s+level=Level\.(\w+),', code))
    assert len(rows) > 20
    assert {name: levels[name].lower() for name in rows if name != doctor.NOT_LOOKED_AT} == {
        name: level for name, level in rows.items() if name != doctor.NOT_LOOKED_AT
    }


def test_exit_codes_on_the_doctors_page_are_those_of_the_code():
    rows = table(section(reference("doctor-command"), "## Exit codes"))
    assert [row[0] for row in rows] == ["0", str(pgqueue_doctor.FOUND), str(pgqueue_doctor.COULD_NOT_LOOK)]


def test_upgrade_page_says_what_each_migration_locks():
    page = (DOCS / "how-to" / "upgrade.md").read_text()
    made = sorted(path.stem for path in (PACKAGE / "migrations").glob("0*.py"))
    assert first_names(section(page, "## What each migration locks")) == made[1:], "the first finds no table"


@pytest.mark.parametrize("page", ["glossary.md", "internals/words.md"])
def test_glossary_is_in_order_and_leads_on_from_every_word(page):
    rows = table((DOCS / page).read_text())
    linked = [re.fullmatch(r"\[([^\]]+)\]\([\w/.#-]+\)", row[0]) for row in rows]
    assert all(linked)
    words = [match[1] for match in linked]
    assert words == sorted(words, key=lambda word: word.lower().replace("_", " "))
    assert page != "glossary.md" or set(Status) <= set(words)


LIMITS = {
    "name of a queue": states.LONGEST_QUEUE,
    "name of a task": states.LONGEST_NAME,
    "unique key, concurrency key, fair key": states.LONGEST_KEY,
    "tags of a job": states.MOST_TAGS,
    "name of a schedule": periodic.LONGEST_NAME,
    "arguments, metadata, result, each": DEFAULTS["MAX_PAYLOAD_BYTES"] // 1024**2,
    "nesting of arguments, metadata and results": DEEPEST,
    "message of progress": LONGEST_MESSAGE,
    "error of an attempt, with its traceback": LONGEST_ERROR_BYTES // 1024,
    "captured log lines of an attempt": FIRST_LINES + LAST_LINES,
    "lost attempts": states.MAX_LOST,
    "stages of a workflow": states.MOST_STAGES,
    "name and unique key of a workflow, name of a stage": states.LONGEST_NAME,
    "new members of a `rerun`": rerun.MOST_CALLS,
}

RANGES = {
    ("tasks", "`max_snoozes`"): states.MOST_SNOOZES,
    ("tasks", "`priority`"): states.HIGHEST_PRIORITY,
    ("tasks", "`run_at`"): states.LATEST.year - 1,
    ("tasks", "`running`"): states.MOST_SLOTS,
    ("tasks", "`queues.limit(name, max_running=…, rate=…, burst=…)`"): queue_limits.MOST,
    ("schedules", "`jitter`"): "a day" if periodic.LONGEST_JITTER_SECONDS == 24 * 3600 else "?",
    ("schedules", "`catch_up_limit`"): periodic.HIGHEST_CATCH_UP_LIMIT,
    ("worker-command", "`--concurrency`"): pgqueue_worker.BOUNDS["concurrency"].highest,
    ("worker-command", "`--processes`"): pgqueue_worker.BOUNDS["processes"].highest,
}


@pytest.mark.parametrize(("page", "name"), RANGES)
def test_ranges_of_options_on_their_pages_are_those_of_the_code(page, name):
    limit = RANGES[page, name]
    wanted = limit if isinstance(limit, str) else rf"\b({limit}|{limit:,})\b"
    assert any(re.search(wanted, " ".join(row[1:])) for row in table(reference(page)) if row[0] == name)


def test_limits_on_their_page_are_those_of_the_code():
    written = {row[0]: row[1] for row in table(reference("limits"))}
    assert set(written) == set(LIMITS)
    for name, limit in LIMITS.items():
        assert re.search(rf"\b({limit}|{limit:,})\b", written[name]), name


def test_signals_page_names_what_receivers_get():
    page = section(reference("signals"), "## event")
    fields = {field.name.removeprefix("_") for field in dataclasses.fields(signals.JobEvent)}
    assert fields | {*states.AttemptOutcome} <= {*names(page)}


def test_sqlstate_classes_on_the_pages_are_those_that_the_code_blames():
    for page in (
        DOCS / "explanation" / "guarantees.md",
        DOCS / "internals" / "life-of-a-job.md",
        DOCS / "reference" / "statuses.md",
    ):
        [classes] = re.findall(r"classes\s+(\d\d), (\d\d) and (\d\d)", page.read_text())
        assert set(classes) == REFUSING_CLASSES, name_of(page)


FAULTS = table((DOCS / "internals" / "failure-modes.md").read_text())


def test_failure_modes_page_numbers_each_fault_once():
    assert sorted(int(row[0]) for row in FAULTS) == list(range(1, 55))


@pytest.mark.parametrize("number", range(1, 55))
def test_tests_that_the_failure_modes_page_names_are_there(number):
    """With their file, and its folder if need be, but for those of tests/processes/test_faults.py."""
    [row] = [row for row in FAULTS if row[0] == str(number)]
    files = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for group in row[3].split(";"):
        [*tests, file] = names(group) if ".py`" in group else [*names(group), "test_faults.py"]
        for test in tests:
            assert any(f"def {test}(" in files[path] for path in files if path.match(file)), f"{test} in {file}"


def test_sql_page_lists_every_parameter_of_the_function():
    text = statement("pgqueue_enqueue")
    [parameters] = re.findall(r"CREATE FUNCTION pgqueue_enqueue\((.*?)\n\) RETURNS", text, flags=re.DOTALL)
    declared = re.findall(r"^\s+(\w+) \w+", parameters, flags=re.MULTILINE)
    assert first_names(section((DOCS / "how-to" / "enqueue-from-sql.md").read_text(), "## The function")) == declared
