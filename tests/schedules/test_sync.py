"""Schedules of the code come into the table, where edits and pauses of staff win."""

import datetime as dt
import logging

import pytest
from django.db import transaction
from django.utils import timezone

from django_pgqueue import periodic, schedules
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.models import Schedule
from django_pgqueue.schedules import sync
from django_pgqueue.schedules.enqueuer import FireResult, fire_due
from django_pgqueue.schedules.sync import ScheduleSync, sync_schedules
from tests.support.schedules import HOUR, RECORD, bound, make

pytestmark = pytest.mark.usefixtures("code")


def new_year_after(instant: dt.datetime) -> dt.datetime:
    return dt.datetime(instant.year + 1, 1, 1, tzinfo=dt.UTC)


@pytest.mark.django_db(transaction=True)
def test_new_schedule_stands_in_the_table_and_is_due_at_its_next_tick(queue, recode):
    begun = timezone.now()
    recode(bound(periodic("0 0 1 1 *", timezone="UTC", jitter=7, catch_up="all"), "x", priority=5))
    assert sync_schedules(queue).new == [RECORD]
    row = Schedule.objects.get()
    assert (row.cron, row.timezone, row.every_seconds, row.args, row.kwargs) == ("0 0 1 1 *", "UTC", None, ["x"], {})
    assert (row.options, row.jitter_seconds, row.catch_up, row.source) == ({"priority": 5}, 7, "all", "code")
    assert row.next_at in {new_year_after(begun), new_year_after(timezone.now())}
    found = sync_schedules(queue)
    assert (found.new, found.changed, found.edited, found.gone) == ([], [], [], [])


@pytest.mark.django_db(transaction=True)
def test_changed_schedule_changes_its_row_and_keeps_what_did_not_change(queue, recode):
    begun = timezone.now()
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    due = Schedule.objects.get().next_at
    recode(bound(periodic(every=HOUR), "y", queue="slow"))
    assert sync_schedules(queue).changed == [RECORD]
    row = Schedule.objects.get()
    assert (row.args, row.options, row.next_at) == (["y"], {"queue": "slow"}, due)
    recode(periodic(every=2 * HOUR))
    sync_schedules(queue)
    assert Schedule.objects.get().next_at == row.created_at + 2 * HOUR
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    assert Schedule.objects.get().next_at == row.created_at + HOUR  # in turns, as by old and new workers
    recode(periodic("0 0 1 1 *", timezone="UTC"))
    sync_schedules(queue)
    assert Schedule.objects.get().next_at in {new_year_after(begun), new_year_after(timezone.now())}


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
@pytest.mark.parametrize("use_tz", [True, False])
def test_interval_that_became_shorter_than_its_last_run_is_long_ago_is_due_now(
    transactional_db, recode, settings, use_tz
):
    settings.USE_TZ = use_tz
    queue = QueueConnection("default", "test")
    try:
        recode(periodic(every=10 * HOUR))
        sync_schedules(queue)
        queue.rows("UPDATE pgqueue_schedules SET last_at = now() - interval '3 hours' RETURNING id", {})
        recode(periodic(every=HOUR))
        assert sync_schedules(queue).changed == [RECORD]
        assert not sync_schedules(queue).changed
        assert fire_due(queue).jobs == 1
    finally:
        queue.close()


@pytest.mark.django_db(transaction=True)
def test_paused_schedule_stays_paused_when_code_is_deployed(queue, recode):
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    schedules.pause([RECORD], by="eve")
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
    recode(periodic("@daily"))
    found = sync_schedules(queue)
    assert (found.new, found.changed, found.gone, found.taken) == ([], [], [], [RECORD])
    assert set(Schedule.objects.values_list("every_seconds", flat=True)) == {3600}


@pytest.mark.django_db(transaction=True)
def test_arguments_that_json_cannot_hold_keep_out_their_schedule_only(queue, recode):
    recode(bound(periodic(every=HOUR), {1, 2}), periodic(every=HOUR, name="good"))
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


def test_each_difference_is_logged_once(queue, recode, caplog):
    caplog.set_level(logging.INFO)
    service = ScheduleSync(queue)
    recode(periodic(every=HOUR), periodic(every=HOUR, name="gone"), periodic(every=HOUR, name="edited"))
    service.declare_schedules()
    Schedule.objects.filter(name="edited").update(args=["z"], edited_at=timezone.now())
    recode(
        periodic(every=HOUR),
        periodic(every=2 * HOUR, name="edited"),
        bound(periodic(every=HOUR, name="wrong"), b"%s"),
    )
    for _ in range(2):
        service.declare_schedules()
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if line.startswith("Schedule")] == [
        "Schedule edited is new",
        "Schedule gone is new",
        f"Schedule {RECORD} is new",
        "Schedule edited stays as it was edited in the admin, not as the code has it",
        "Schedule gone is not in this code: this worker leaves it alone",
        *[line for line in lines if "Schedule wrong of the code is left out: Cannot be stored" in line],
    ]
