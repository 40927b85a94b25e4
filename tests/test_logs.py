"""Log lines about jobs: one for each attempt, constant texts, fields; and the filter for lines of the project."""

import ast
import importlib.util
import io
import json
import logging
import logging.config
import sys
from pathlib import Path

import pytest

import django_pgqueue
import tests.app.tasks as app
from django_pgqueue import is_in_job, logs
from django_pgqueue.jobs import kill, purge
from django_pgqueue.log_lines import FAILURES, FIELDS, this_worker
from django_pgqueue.logs import JobFields
from django_pgqueue.maintenance.reaper import settle
from django_pgqueue.models import DeadJob
from django_pgqueue.records import Fate, Lease, Outcome
from django_pgqueue.states import DeathReason
from tests.support.claimed import job
from tests.support.doc_pages import first_names, reference, section
from tests.support.log_records import OF_ANY_RECORD, attempt, fields_of
from tests.support.pages import DOCS, blocks
from tests.support.running import run_claimed

PACKAGE = Path(django_pgqueue.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


@pytest.mark.parametrize(("attempts", "line"), [(1, ("WARNING", "Lost")), (3, ("ERROR", "Dead"))])
def test_job_whose_worker_died_has_its_line(queue, sql, caplog, attempts, line):
    sql("INSERT INTO pgqueue_jobs (task) VALUES ('t')")
    [(job_id,)] = sql(
        "UPDATE pgqueue_jobs SET status = 'running', lease_token = 9, worker_id = 5, attempts = %s RETURNING id",
        attempts,
    )
    settle(queue, [Lease(job_id, 9, 5, "default", attempts, 3, 0, False, "web-1 pid 7", "t", 0)])
    [record] = caplog.records
    assert (record.levelname, record.getMessage().partition(":")[0]) == line
    assert (record.job, record.attempt, record.lost_worker) == (job_id, attempts, "web-1 pid 7")


def test_lines_about_several_jobs_name_them_and_who_did_it(db, caplog):
    caplog.set_level(logging.INFO, "django_pgqueue")
    job_id = app.noop.enqueue().id
    kill([job_id], by="ann")
    purge([job_id], by="ann")
    [record] = caplog.records
    assert (record.jobs, record.by) == ([job_id], "ann")
    assert not DeadJob.objects.exists()


def calls(name=None):
    """Yield the calls of loggers in the package, or of a function of this name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            func = node.func
            if name is not None and isinstance(func, ast.Name) and func.id == name:
                yield path, node
            if (
                name is None
                and isinstance(func, ast.Attribute)
                and func.attr in LEVELS
                and isinstance(func.value, ast.Name)
                and func.value.id in {"logger", "worker_logger", "failures", "told"}
            ):
                yield path, node


def test_every_line_about_one_job_has_its_fields():
    """Those that name an id of a job or a lease, in whatever way they come by it."""
    about = [
        (path, node) for path, node in calls() if {"job.id", "lease.id", "*about"} & set(map(ast.unparse, names(node)))
    ]
    assert len(about) > 10
    for path, node in about:
        assert "extra" in {keyword.arg for keyword in node.keywords}, f"{path.name}:{node.lineno}"


def names(call):
    for argument in call.args:
        inside = argument.value if isinstance(argument, ast.Starred) else argument
        yield argument
        yield from inside.elts if isinstance(inside, ast.Tuple) else ()


def test_text_of_every_line_is_constant():
    found = list(calls())
    assert len(found) > 50
    for path, node in found:
        assert isinstance(node.args[0], ast.Constant | ast.Name), f"{path.name}:{node.lineno}"


def test_reference_lists_every_field():
    found = {"jobs", "by", *FIELDS, "error", "error_message"}
    for function in ("fields", "_fields"):
        found |= {keyword.arg for _, node in calls(function) for keyword in node.keywords if keyword.arg}
    assert set(first_names(section(reference("log-messages"), "## Fields"))) == found
    assert not found & OF_ANY_RECORD


# The recipes


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """The page's own code, as a project has it; yields the stream that its handler writes to."""
    module, settings, other = blocks(DOCS / "how-to" / "log.md", "python")
    (tmp_path / "recipe_logs.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "recipe_logs", raising=False)
    names = {}
    exec(settings.replace("shop.logs", "recipe_logs") + other, names)
    given = names["LOGGING"]
    root = given.pop("root")
    given["loggers"] = {"django_pgqueue": root, "shop": {**root, "propagate": False}}
    loggers = [logging.getLogger(name) for name in given["loggers"]]
    kept = [(logger, [*logger.handlers], logger.level, logger.propagate) for logger in loggers]
    stream = io.StringIO()
    given["handlers"]["stderr"]["stream"] = stream

    def set_up(*, is_package):
        if is_package:
            given["formatters"]["json"] = names["JSON"]
        logging.config.dictConfig({**given, "incremental": False})
        return stream

    yield set_up
    for logger, *before in kept:
        logger.handlers, logger.level, logger.propagate = before
        logger.manager._clear_cache()
    sys.modules.pop("recipe_logs", None)


@pytest.mark.parametrize("is_package", [False, True], ids=["standard library", "python-json-logger"])
def test_recipe_writes_one_json_object_for_each_line(queue, recipe, registry_of, is_package):
    if is_package:
        assert importlib.util.find_spec("pythonjsonlogger")

    def ship(order):
        logging.getLogger("shop").info("shipping %s", order)
        raise ValueError("no\nship")

    stream = recipe(is_package=is_package)
    registry_of(ship, max_attempts=1).enqueue("an order")
    attempt(queue)
    logging.getLogger("shop").info("outside")
    own, dead, outside = map(json.loads, stream.getvalue().splitlines())
    assert (own["job"], own["attempt"], own["queue"]) == (dead["job"], 1, "default")
    assert (dead["outcome"], dead["reason"], dead["error_message"]) == ("died", "exhausted", "no\nship")
    assert "job" not in outside
    assert own["message" if is_package else "text"] == "shipping an order"
    if not is_package:
        assert dead["template"] == "Dead: job %s (%s) attempt %d of %d, %s: %s"


def test_example_on_the_page_has_the_fields_of_such_a_line(queue, caplog):
    [example] = blocks(DOCS / "how-to" / "log.md", "json")
    app.fail.enqueue()
    attempt(queue)
    [record] = caplog.records
    assert set(json.loads(example)) - {"at", "level", "logger", "text", "template"} == set(fields_of(record))


def test_filter_leaves_fields_that_are_there():
    record = logging.makeLogRecord({"job": 5})
    assert JobFields().filter(record)
    assert (record.job, hasattr(record, "task")) == (5, False)
    assert not is_in_job()


def test_each_attempt_has_one_line_with_fields(queue, caplog):
    caplog.set_level(logging.INFO, "django_pgqueue.jobs")
    app.fail_until.using(metadata={"a": 1}, queue="mail").enqueue(2)
    app.fail.using(max_attempts=1, queue="mail").enqueue("bad luck")
    for _ in range(3):
        [outcome] = run_claimed(queue, "mail")
        logs.report_all([outcome], stale=())
    done, failed, dead = sorted(caplog.records, key=lambda record: (record.levelno, record.args[0]))
    seconds = [vars(record).pop("run_seconds") for record in (done, failed, dead)]
    assert all(0 <= one < 60 for one in seconds)
    common = {"queue": "mail", "worker": this_worker()}
    raised = {"error": "ValueError"}
    assert fields_of(done) == common | {
        "job": done.args[0],
        "task": "tests.app.tasks.fail_until",
        "attempt": 2,
        "max_attempts": 10,
        "outcome": "succeeded",
    } | {"max_attempts": 3}
    assert fields_of(failed) == common | raised | {
        "job": done.args[0],
        "task": "tests.app.tasks.fail_until",
        "attempt": 1,
        "max_attempts": 3,
        "outcome": "retried",
        "delay_seconds": 0.0,
        "error_message": "not before attempt 2",
    }
    assert fields_of(dead) == common | raised | {
        "job": dead.args[0],
        "task": "tests.app.tasks.fail",
        "attempt": 1,
        "max_attempts": 1,
        "outcome": "died",
        "reason": "exhausted",
        "error_message": "bad luck",
    }
    assert [record.levelname for record in (done, failed, dead)] == ["INFO", "WARNING", "ERROR"]
    assert {failed.name, dead.name} == {FAILURES}
    assert failed.msg == "Failed: job %s (%s) attempt %d of %d, again in %.0f s: %s"


@pytest.mark.parametrize(
    ("outcome", "stale", "line"),
    [
        (Outcome(job(), Fate.SUCCEEDED), {1}, ("WARNING", "django_pgqueue.jobs", "Stale result dropped")),
        (Outcome(job(), Fate.RECORDED), (), ("INFO", "django_pgqueue.jobs", "Done")),
        (Outcome(job(), Fate.DIED, reason=DeathReason.UNKNOWN_TASK), (), ("ERROR", "django_pgqueue.jobs", "Dead")),
        (Outcome(job(), Fate.DIED, reason=DeathReason.DISCARDED), (), ("ERROR", FAILURES, "Dead")),
    ],
    ids=["stale", "recorded", "unknown task", "discarded"],
)
def test_other_ends_have_their_line(caplog, outcome, stale, line):
    caplog.set_level(logging.INFO, "django_pgqueue.jobs")
    logs.report_all([outcome], stale=stale)
    [record] = caplog.records
    assert (record.levelname, record.name, record.getMessage().partition(":")[0]) == line
    assert set(FIELDS) < set(fields_of(record))


@pytest.mark.parametrize("how", ["DEBUG", "level"])
def test_line_of_a_failure_has_the_traceback_while_developing(queue, caplog, settings, how):
    caplog.set_level(logging.DEBUG if how == "level" else logging.INFO, "django_pgqueue.jobs")
    settings.DEBUG = how == "DEBUG"
    app.fail.using(max_attempts=2).enqueue("bad luck")
    failed, dead = attempt(queue) + attempt(queue)
    for record, outcome in zip(caplog.records, (failed, dead), strict=True):
        line, trace = record.getMessage().split("\n", 1)
        assert line.endswith("ValueError: bad luck")
        assert trace == outcome.error["traceback"].rstrip()
        first, at, *_ = trace.splitlines()
        assert first == "Traceback (most recent call last):"
        assert at.endswith("in fail")  # the frames of the queue, which all tracebacks would begin with, are left out
        assert "app/tasks.py" in at
        assert vars(record)["error_message"] == "bad luck"


def test_line_of_a_failure_is_one_line_in_production(queue, caplog):
    caplog.set_level(logging.INFO, "django_pgqueue.jobs")
    app.fail.using(max_attempts=1).enqueue("bad luck")
    attempt(queue)
    assert "\n" not in caplog.records[0].getMessage()


def test_nothing_is_made_of_successes_where_info_is_off(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "django_pgqueue.jobs")
    made = []
    monkeypatch.setattr(logs, "report", lambda *args, **_: made.append(args))
    logs.report_all([Outcome(job(), Fate.SUCCEEDED)] * 3, stale=())
    assert made == []
    logs.report_all([Outcome(job(), Fate.RETRIED)], stale=())
    assert len(made) == 1
