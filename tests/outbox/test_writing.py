"""Calls that are put into the outbox of another database than the queue's: their ids, and what is known of them."""

import contextlib
import datetime as dt

import pytest
from django.core.checks import run_checks
from django.db import ProgrammingError, connections, transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many, jobs
from django_pgqueue.exceptions import InvalidArguments, JobDoesNotExist, JobNotCommitted
from django_pgqueue.framework import task_backends
from django_pgqueue.jobs import lookup
from django_pgqueue.models import Job
from django_pgqueue.outbox.models import OutboxCall
from django_pgqueue.outbox.relay import Relay
from django_pgqueue.outbox.writing import Origin, job_id_of
from django_pgqueue.signals import job_enqueued
from django_pgqueue.states import JobStatus
from tests.app import contract
from tests.app.models import Mark

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.mark.parametrize(("number", "outbox", "row"), [(0, 0, 1), (0, 5, 7), (31, 127, 2**40 - 1)])
def test_id_of_a_job_names_its_origin(number, outbox, row):
    job_id = job_id_of(number, outbox, row)
    assert Origin.of(job_id) == (outbox, row)
    assert job_id >> 48 == number
    assert job_id < 2**53


@pytest.mark.parametrize("job_id", [0, -1, 1, 2**47 - 1, 2**48, 2**48 + 1])
def test_other_ids_have_no_origin(job_id):
    assert Origin.of(job_id) is None


def test_call_is_committed_with_the_data(outbox):
    with transaction.atomic(using=outbox):
        Mark.objects.using(outbox).create(job_id=0, attempt=0, pid=0, label="order")
        handle = app.record.enqueue("x")
        assert handle.status() is JobStatus.QUEUED  # as this transaction sees it
    assert not Job.objects.exists()
    [row] = OutboxCall.objects.using(outbox).all()
    assert handle.id == job_id_of(0, 5, row.pk)
    assert (handle.database, handle.created) == ("default", True)
    state = jobs.get(handle.id).state()
    assert (state.status, state.task, state.args, state.kwargs) == ("queued", "tests.app.tasks.record", ["x"], {})
    assert state.enqueued_at == row.enqueued_at


def test_call_goes_with_the_data_that_are_rolled_back(outbox):
    with transaction.atomic(using=outbox):
        Mark.objects.using(outbox).create(job_id=0, attempt=0, pid=0, label="order")
        handle = app.record.enqueue("x")
        transaction.set_rollback(True, using=outbox)
    assert not OutboxCall.objects.using(outbox).exists()
    with pytest.raises(JobDoesNotExist):
        handle.state()


def test_call_is_put_there_only_where_the_data_are(outbox):
    assert app.noop.enqueue().id < 2**47  # in no transaction
    with transaction.atomic():
        assert app.noop.enqueue().id < 2**47  # in one of the queue's database alone
        with transaction.atomic(using=outbox):
            assert app.noop.enqueue().id < 2**47  # both are open: that of the queue's database
    assert Job.objects.count() == 3


def test_call_that_has_met_a_job_is_found_if_it_was_handed_over_while_it_was_looked_for(outbox, monkeypatch):
    holder = app.record.using(unique_key="k").enqueue("first")
    with transaction.atomic(using=outbox):
        handle = app.record.using(unique_key="k").enqueue("second")
    find_met = lookup._find_met

    def just_before(database, call_id):
        monkeypatch.setattr(lookup, "_find_met", find_met)
        found = find_met(database, call_id)
        with contextlib.closing(Relay("default", outbox)) as relay:
            relay.pass_once()
        return found

    monkeypatch.setattr(lookup, "_find_met", just_before)
    assert handle.state().id == holder.id


def test_every_way_to_enqueue_leads_there(outbox):
    heard = []

    def hear(ids, task, **_):
        heard.append((task, ids))

    job_enqueued.connect(hear)
    try:
        with transaction.atomic(using=outbox):
            handles = [
                app.noop.enqueue(),
                *app.record.enqueue_many([("a",), {"label": "b"}]),
                *enqueue_many(
                    [app.noop.bind(), app.record.using(delay=dt.timedelta(hours=1), tags=["x", "y"]).bind("c")]
                ),
            ]
    finally:
        job_enqueued.disconnect(hear)
    first = OutboxCall.objects.using(outbox).earliest("pk").pk
    assert [handle.id for handle in handles] == [job_id_of(0, 5, first + place) for place in range(5)]
    assert [ids for _, ids in heard] == [
        [one.id for one in group] for group in ([handles[0]], handles[1:3], *zip(handles[3:]))
    ]
    assert handles[4].status() is JobStatus.SCHEDULED
    assert handles[4].state().tags == ("x", "y")
    assert not Job.objects.exists()


def test_task_of_the_framework_goes_there_too(outbox):
    with transaction.atomic(using=outbox):
        result = contract.echo.enqueue("x")
        first, later = (
            contract.echo.using(run_after=dt.timedelta(hours=1))
            .get_backend()
            .enqueue_many(contract.echo.using(run_after=dt.timedelta(hours=1)), [("y",), ("z",)])
        )
    calls = list(OutboxCall.objects.using(outbox).order_by("pk"))
    assert [int(one.id) for one in (result, first, later)] == [job_id_of(0, 5, call.pk) for call in calls]
    assert [one.enqueued_at for one in (result, first, later)] == [call.enqueued_at for call in calls]
    assert first.task.run_after == calls[1].enqueued_at + dt.timedelta(hours=1)
    assert task_backends["default"].get_result(result.id).args == ["x"]


def test_arguments_are_checked_as_always(outbox):
    with transaction.atomic(using=outbox):
        for call in (
            lambda: app.record.enqueue({1}),
            lambda: app.record.enqueue(no="such"),
            lambda: app.record.enqueue("\0"),
        ):
            with pytest.raises(InvalidArguments):
                call()
    assert not OutboxCall.objects.using(outbox).exists()


def test_result_is_not_waited_for_in_the_transaction(outbox):
    with transaction.atomic(using=outbox):
        handle = app.record.enqueue("x")
        with pytest.raises(JobNotCommitted, match="still open on 'other'"):
            handle.result(timeout=10)


def test_missing_tables_are_named(settings):
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"other": 0}}
    with pytest.raises(ProgrammingError, match="pgqueue_outbox") as caught, transaction.atomic(using="other"):
        app.noop.enqueue()
    [note] = caught.value.__notes__
    assert note == (
        "Run: manage.py migrate pgqueue_outbox --database other (if it has nothing to apply, run before it: "
        "manage.py migrate pgqueue_outbox zero --fake --database other)"
    )


def test_check_names_a_database_whose_outbox_was_migrated_before_it_was_declared(settings):
    assert run_checks(tags=["database"], databases=["default", "other"]) == []
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"other": 0}}
    [found] = run_checks(tags=["database"], databases=["default", "other"])
    assert (found.id, found.msg[:7]) == ("pgqueue.W007", "'other'")
    assert "migrate pgqueue_outbox zero --fake --database other && manage.py migrate pgqueue_outbox" in found.hint
    assert run_checks(tags=["database"], databases=["default"]) == []


def test_check_is_content_with_an_outbox_that_has_its_tables(outbox):
    assert run_checks(tags=["database"], databases=["default", outbox]) == []


def test_arguments_are_in_no_text_of_a_statement(outbox):
    with transaction.atomic(using=outbox):
        app.record.enqueue("secret word")
        with connections[outbox].cursor() as cursor:
            cursor.execute("SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid()")
    texts = [one["sql"] for one in connections[outbox].queries_log]
    assert not any("secret word" in text for text in texts)
