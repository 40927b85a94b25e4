"""@periodic, and how what the code declares comes into the table."""

import datetime as dt
import logging

import pytest
from django.db import transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import pause_schedules, periodic, task
from django_pgqueue.checks import check_schedules
from django_pgqueue.exceptions import ConfigurationError, InvalidJob, InvalidSchedule
from django_pgqueue.models import Job, Schedule
from django_pgqueue.schedules import periodic as timetable
from django_pgqueue.schedules import sync
from django_pgqueue.schedules.enqueuer import FireResult, PeriodicEnqueuer, fire_due
from django_pgqueue.schedules.sync import sync_schedules
from tests.support.schedules import RECORD, make

HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def code(monkeypatch) -> dict:
    """What the code declares: at first, nothing."""
    monkeypatch.setattr(timetable, "_declared", {})
    return timetable._declared


@pytest.fixture
def recode(code):
    """Have other code, as after a deploy."""

    def load(*declarations) -> None:
        code.clear()
        for declaration in declarations:
            declaration(app.record)

    return load


# In code


def test_schedules_are_declared_above_the_task(code):
    every, cron = periodic(every=HOUR), periodic(name="nightly", cron="@daily", timezone="Asia/Tokyo", args=["x"])
    assert cron(every(app.record)) is app.record
    assert [(name, one.task, one.rhythm.cron, one.rhythm.timezone) for name, one in code.items()] == [
        (RECORD, app.record, "", "Europe/Berlin"),
        ("nightly", app.record, "@daily", "Asia/Tokyo"),
    ]


def test_durations_among_the_options_become_seconds(code):
    periodic(every=HOUR, timeout=dt.timedelta(minutes=2), priority=5, jitter=dt.timedelta(minutes=1))(app.noop)
    [declared] = code.values()
    assert declared.options == {"timeout": 120.0, "priority": 5}
    assert declared.jitter_seconds == 60.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "either cron="),
        ({"cron": "@daily", "every": HOUR}, "either cron="),
        ({"cron": "0 25 * * *"}, "cron is '0 25"),
        ({"every": dt.timedelta(0)}, "every is a timedelta of 1 second"),
        ({"every": HOUR, "timezone": "Mars"}, "timezone is 'Mars'"),
        ({"every": HOUR, "args": ("a", "b")}, r"tests\.app\.tasks\.record takes .*do not fit: too many positional"),
        ({"every": HOUR, "kwargs": {"colour": 1}}, "unexpected keyword argument 'colour'"),
        ({"every": HOUR, "args": "daily"}, r"args is a tuple or list.*args=\('daily',\)"),
        ({"every": HOUR, "name": ""}, "name is a text of 1 to 200 characters, not ''"),
        ({"every": HOUR, "name": "x" * 201}, "name is a text"),
        ({"every": HOUR, "jitter": -1}, "jitter is 0 or more seconds, or a timedelta, of a day at most, not -1"),
        ({"every": HOUR, "jitter": 86_401}, "jitter is"),
        ({"every": HOUR, "catch_up": "some"}, "catch_up is one of 'last', 'none', 'all', not 'some'"),
        ({"every": HOUR, "catch_up_limit": 0}, "catch_up_limit is a whole number from 1 to 10000, not 0"),
        ({"every": HOUR, "run_at": HOUR}, "run_at cannot be given to a schedule"),
        ({"every": HOUR, "metadata": {"x": object()}}, "cannot be stored as JSON"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(values, message, code):
    with pytest.raises(InvalidSchedule, match=message):
        periodic(**values)(app.record)
    assert not code


def test_option_that_no_job_has_is_refused():
    with pytest.raises(InvalidJob, match="There is no option colour"):
        periodic(every=HOUR, colour="red")(app.record)


@pytest.mark.parametrize("given", [app.record.func, app.record.using(queue="x"), None])
def test_periodic_stands_above_a_task(given):
    with pytest.raises(ConfigurationError, match=r"Write @periodic\(…\) above @task"):
        periodic(every=HOUR)(given)


def test_two_schedules_have_two_names(code):
    periodic(every=HOUR, name="x")(app.record)
    for other in (app.record, app.noop):
        with pytest.raises(ConfigurationError, match=r"Two schedules are called 'x'.*another name="):
            periodic(every=HOUR, name="x")(other)


@pytest.mark.usefixtures("registry_of")
def test_module_that_is_loaded_again_replaces_its_schedules(code):
    def load():
        def tick() -> None: ...

        tick.__qualname__ = "tick"
        return periodic(cron="@daily")(task(tick))

    first, second = load(), load()
    assert first is not second
    assert [one.task for one in code.values()] == [second]


# In the table


@pytest.mark.django_db(transaction=True)
def test_new_schedule_stands_in_the_table_and_is_due_at_its_next_tick(queue, recode):
    recode(periodic(cron="0 0 1 1 *", timezone="UTC", args=["x"], priority=5, jitter=7, catch_up="all"))
    assert sync_schedules(queue).new == [RECORD]
    row = Schedule.objects.get()
    assert (row.cron, row.timezone, row.every_seconds, row.args, row.kwargs) == ("0 0 1 1 *", "UTC", None, ["x"], {})
    assert (row.options, row.jitter_seconds, row.catch_up, row.source) == ({"priority": 5}, 7, "all", "code")
    assert (row.next_at.month, row.next_at.day, row.next_at.year) == (1, 1, timezone.now().year + 1)
    found = sync_schedules(queue)
    assert (found.new, found.changed, found.edited, found.gone) == ([], [], [], [])


@pytest.mark.django_db(transaction=True)
def test_changed_schedule_changes_its_row_and_keeps_what_did_not_change(queue, recode):
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    due = Schedule.objects.get().next_at
    recode(periodic(every=HOUR, args=["y"], queue="slow"))
    assert sync_schedules(queue).changed == [RECORD]
    row = Schedule.objects.get()
    assert (row.args, row.options, row.next_at) == (["y"], {"queue": "slow"}, due)
    recode(periodic(every=2 * HOUR))
    sync_schedules(queue)
    assert Schedule.objects.get().next_at == row.created_at + 2 * HOUR
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    assert Schedule.objects.get().next_at == row.created_at + HOUR  # in turns, as by old and new workers
    recode(periodic(cron="0 0 1 1 *", timezone="UTC"))
    sync_schedules(queue)
    assert Schedule.objects.get().next_at == dt.datetime(timezone.now().year + 1, 1, 1, tzinfo=dt.UTC)


@pytest.mark.django_db(transaction=True)
def test_tick_that_comes_while_its_schedule_is_changed_comes_once(queue, other_queue, recode, sql, monkeypatch):
    """The deploy makes the interval shorter, and has reckoned its next tick by the one before."""
    recode(periodic(every=10 * HOUR))
    sync_schedules(queue)
    sql("UPDATE pgqueue_schedules SET created_at = now() - interval '630 min', next_at = now() - interval '30 min'")
    reckon = sync._next_at

    def reckon_and_tick(*given):
        reckoned = reckon(*given)
        assert fire_due(other_queue).jobs == 1
        return reckoned

    recode(periodic(every=HOUR))
    with monkeypatch.context() as patch:
        patch.setattr(sync, "_next_at", reckon_and_tick)
        assert sync_schedules(queue).changed == []
    assert fire_due(queue).jobs == 0
    assert sync_schedules(queue).changed == [RECORD]
    row = Schedule.objects.get()
    assert row.next_at == row.last_at + HOUR


@pytest.mark.django_db(transaction=True)
def test_interval_that_became_shorter_than_its_last_run_is_long_ago_is_due_now(queue, recode):
    recode(periodic(every=10 * HOUR))
    sync_schedules(queue)
    Schedule.objects.update(last_at=timezone.now() - 3 * HOUR)
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    assert fire_due(queue).jobs == 1


@pytest.mark.django_db(transaction=True)
def test_paused_schedule_stays_paused_when_code_is_deployed(queue, recode):
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    pause_schedules([RECORD], by="eve")
    recode(periodic(every=2 * HOUR))
    assert sync_schedules(queue).changed == [RECORD]
    assert not Schedule.objects.get().is_enabled


@pytest.mark.django_db(transaction=True)
def test_edit_in_the_admin_wins_over_code(queue, recode):
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    Schedule.objects.update(every_seconds=60, edited_at=timezone.now())
    found = sync_schedules(queue)
    assert (found.edited, found.changed) == ([RECORD], [])
    assert Schedule.objects.get().every_seconds == 60


@pytest.mark.django_db(transaction=True)
def test_edit_made_while_the_code_is_compared_wins_too(queue, recode, monkeypatch):
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    recode(periodic(every=2 * HOUR))
    definition_of = sync.definition_of

    def edit_meanwhile(schedule):
        Schedule.objects.update(every_seconds=60, edited_at=timezone.now())
        return definition_of(schedule)

    monkeypatch.setattr(sync, "definition_of", edit_meanwhile)
    assert sync_schedules(queue).changed == []
    assert Schedule.objects.get().every_seconds == 60


@pytest.mark.django_db(transaction=True)
def test_schedule_that_is_gone_from_the_code_is_left_alone_and_forgotten_after_thirty_days(queue, recode, sql):
    recode(periodic(every=HOUR), periodic(every=HOUR, name="other"))
    sync_schedules(queue)
    Schedule.objects.update(next_at=timezone.now() - HOUR)
    recode(periodic(every=HOUR, name="other"))
    found = sync_schedules(queue)
    assert (found.gone, found.forgotten) == ([RECORD], [])
    assert fire_due(queue).jobs == 1
    sql("UPDATE pgqueue_schedules SET declared_at = now() - interval '29 days'")
    assert sync_schedules(queue).forgotten == []
    assert Schedule.objects.get(name="other").declared_at > timezone.now() - HOUR
    sql("UPDATE pgqueue_schedules SET declared_at = now() - interval '31 days'")
    assert sync_schedules(queue).forgotten == [RECORD]
    assert list(Schedule.objects.values_list("name", flat=True)) == ["other"]


@pytest.mark.django_db(transaction=True)
def test_old_worker_leaves_alone_what_only_a_new_one_declares(queue, recode):
    """In the middle of a deploy, whichever worker starts last."""
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    Schedule.objects.update(next_at=timezone.now())
    recode()
    sync_schedules(queue)
    assert fire_due(queue) == FireResult()
    recode(periodic(every=HOUR))
    assert sync_schedules(queue).new == []
    assert fire_due(queue).jobs == 1


@pytest.mark.django_db(transaction=True)
def test_schedules_made_by_hand_are_not_touched(queue, recode):
    make("mine")
    make(RECORD)
    recode(periodic(cron="@daily"))
    found = sync_schedules(queue)
    assert (found.new, found.changed, found.gone, found.taken) == ([], [], [], [RECORD])
    assert set(Schedule.objects.values_list("every_seconds", flat=True)) == {3600}


@pytest.mark.django_db(transaction=True)
def test_arguments_that_json_cannot_hold_keep_out_their_schedule_only(queue, recode):
    recode(periodic(every=HOUR, args=[{1, 2}]), periodic(every=HOUR, name="good"))
    found = sync_schedules(queue)
    assert found.new == ["good"]
    assert "args[0] is the set" in found.wrong[RECORD]


@pytest.mark.django_db(transaction=True)
def test_unknown_task_is_noted_once_its_tick_is_over(queue):
    make("strange", task="shop.tasks.not_here", next_at=timezone.now())
    assert sync_schedules(queue).strange == {}
    Schedule.objects.update(next_at=timezone.now() - dt.timedelta(minutes=2))
    assert sync_schedules(queue).strange == {"strange": "shop.tasks.not_here"}
    assert sync_schedules(queue).strange == {}
    assert Schedule.objects.get().last_error == "No worker knows the task 'shop.tasks.not_here'."


@pytest.mark.django_db(transaction=True)
def test_declaring_waits_for_no_lock(queue, other_queue, recode):
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    recode(periodic(every=2 * HOUR))
    Schedule.objects.update(declared_at=None)
    with transaction.atomic():
        Schedule.objects.select_for_update().get()
        assert sync_schedules(queue).changed == []
    assert sync_schedules(queue).changed == [RECORD]


@pytest.mark.django_db(transaction=True)
def test_name_that_an_open_transaction_has_just_taken_is_left_for_the_next_time(queue, recode):
    recode(periodic(every=HOUR))
    with transaction.atomic():
        Schedule.objects.create(name=RECORD, task=RECORD, every_seconds=60, next_at=timezone.now())
        assert sync_schedules(queue).new == []
    assert sync_schedules(queue).taken == [RECORD]


@pytest.mark.django_db(transaction=True)
def test_worker_declares_and_fires_and_tells_each_thing_once(queue, recode, caplog):
    caplog.set_level(logging.INFO)
    announced = []
    scheduler = PeriodicEnqueuer(queue, announced.append)
    recode(periodic(every=HOUR), periodic(every=HOUR, name="gone"), periodic(every=HOUR, name="edited"))
    assert 0 < scheduler.declare_schedules() < 61
    Schedule.objects.filter(name="edited").update(args=["z"], edited_at=timezone.now())
    Schedule.objects.filter(name=RECORD).update(next_at=timezone.now())
    recode(
        periodic(every=HOUR),
        periodic(every=2 * HOUR, name="edited"),
        periodic(every=HOUR, name="wrong", args=[b"%s"]),
    )
    for _ in range(2):
        scheduler._declare_at = 0.0
        scheduler.declare_schedules()
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if line.startswith("Schedule")] == [
        "Schedule edited is new",
        "Schedule gone is new",
        f"Schedule {RECORD} is new",
        "Schedule edited stays as it was edited in the admin, not as the code has it",
        "Schedule gone is not in this code: this worker leaves it alone",
        *[line for line in lines if "Schedule wrong of the code is left out: Cannot be stored" in line],
    ]
    assert scheduler.fire_schedules(0.0) == 0.0, "there may be more"
    assert scheduler.fire_schedules(0.0) == 5.0
    assert scheduler.fire_schedules(60.0) == 60.0
    assert announced == [{"default"}]
    assert Job.objects.count() == 1


def test_check_names_schedules_that_cannot_be_stored(recode):
    recode(periodic(every=HOUR, args=[{1, 2}]), periodic(every=HOUR, name="good", args=["x"]))
    [error] = check_schedules()
    assert (error.id, "'tests.app.tasks.record'" in error.msg, "args[0] is the set" in error.msg) == (
        "pgqueue.E005",
        True,
        True,
    )
