"""Tasks, as people and programs are told of them."""

import datetime as dt

import tests.app.tasks as app
from django_pgqueue import Limit, periodic, registry
from django_pgqueue.insights.task_info import as_json, described
from django_pgqueue.options import OF_RULES, OF_TASKS
from tests.support.every_option import STORED
from tests.support.keyed import keyed


def test_options_are_told_as_they_come_out(settings):
    settings.PGQUEUE = {"LEASE_SECONDS": 45}
    assert as_json(app.noop)["options"] == {
        "queue": "default",
        "priority": 0,
        "max_attempts": app.noop.options.attempts_allowed,
        "timeout": None,
        "lease": 45,
    }


def test_options_that_differ_from_their_defaults_are_told_too():
    day = dt.timedelta(days=1)
    chosen = app.noop.using(queue="mail", timeout=dt.timedelta(minutes=2), expires=day, metadata={"a": 1})
    told = as_json(chosen)["options"]
    assert (told["queue"], told["timeout"], told["expires"], told["metadata"]) == ("mail", 120, 86400.0, {"a": 1})


def test_former_names_and_schedules_are_told(code):
    task = registry.get("tests.app.tasks.old_name")
    periodic("0 9 * * mon-fri", name="daily", timezone="Europe/Berlin")(task)
    periodic(every=dt.timedelta(hours=1), name="hourly")(task)
    told = as_json(task)
    assert told["aliases"] == ["tests.app.tasks.old_name"]
    assert [(one["name"], one["cron"], one["every_seconds"]) for one in told["schedules"]] == [
        ("daily", "0 9 * * mon-fri", None),
        ("hourly", "", 3600.0),
    ]
    lines = described(task)
    assert lines[0] == task.name
    assert "  schedule daily: cron 0 9 * * mon-fri (Europe/Berlin)" in lines
    assert "  schedule hourly: every 1:00:00" in lines
    assert "  formerly tests.app.tasks.old_name" in lines


def test_async_tasks_say_so():
    assert as_json(app.arecord)["is_async"]
    assert described(app.arecord)[1].startswith("  async, queue default")


def test_options_of_the_task_itself_are_told():
    told = as_json(app.fail)["options"]
    assert (told["max_attempts"], told["backoff"]) == (3, "a function")
    bounded = keyed(max_snoozes=3)
    assert as_json(bounded)["options"]["max_snoozes"] == 3
    assert described(bounded)[1].endswith(", max_snoozes 3")
    assert as_json(keyed(capture_logs="INFO"))["options"]["capture_logs"] == "INFO"
    chosen = app.record.using(unique="label", limit=Limit("label", running=3))
    told = as_json(chosen)["options"]
    assert (told["unique"], told["limit"]) == ({"by": ["label"]}, {"by": ["label"], "running": 3})
    assert ", unique (by label), limit (by label, running 3)" in described(chosen)[1]
    assert as_json(app.record.using(unique=True))["options"]["unique"] is True
    assert described(app.record.using(unique=True))[1].endswith(", unique")


def test_each_option_is_told_that_is_given():
    own = {
        "backoff": 5,
        "max_snoozes": 3,
        "discard_on": (ValueError, "shop.Declined"),
        "atomic": True,
        "aliases": ["tests.former"],
        "sensitive_parameters": ["label"],
        "capture_logs": "INFO",
    }
    assert own.keys() == OF_TASKS == OF_RULES
    by_default, told = as_json(keyed())["options"], as_json(keyed(**own))
    assert told["aliases"] == own.pop("aliases")
    assert {name: value for name, value in told["options"].items() if name not in by_default} == own | {
        "backoff": "a function",
        "discard_on": ["builtins.ValueError", "shop.Declined"],
    }
    for name, value in STORED.items():
        assert as_json(app.record.using(**{name: value}))["options"][name] != by_default.get(name)
    settled = keyed(capture_logs=False, discard_on=())
    assert as_json(settled)["options"] == by_default, "as without them"
