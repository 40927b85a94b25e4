"""Rows that no code of ours would write, as a role may that can insert: no worker ends by them, no page, no command."""

import contextlib
import io
import json
import queue as stdlib_queue
from collections.abc import Iterator
from urllib.parse import urlencode

import hypothesis
import pytest
from django.contrib.admin.utils import quote
from django.core.management import CommandError, call_command
from django.db import IntegrityError, models, transaction
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tests.app.tasks as app
from django_pgqueue import jobs
from django_pgqueue.framework import TaskResultDoesNotExist, task_backends
from django_pgqueue.insights import history
from django_pgqueue.jobs.actions import KILL, MOVE, PURGE, RETRY, SET_PRIORITY
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.leases import worker_leases
from django_pgqueue.jobs.search import Filter
from django_pgqueue.maintenance.bulk_runner import carry_on
from django_pgqueue.maintenance.reaper import settle
from django_pgqueue.models import BulkAction, DeadJob, Job, Queue, SucceededJob
from django_pgqueue.states import EntryKind
from django_pgqueue.worker.consumer import Consumer
from django_pgqueue.worker.shared_state import SharedState, now
from django_pgqueue.worker.slots import Slots
from tests.support.consumers import cycle
from tests.support.hostile import DIGITS, UNREADABLE
from tests.support.slots import ended
from tests.support.waiting import eventually

TABLES = {"job": Job, "deadjob": DeadJob, "succeededjob": SucceededJob}

NAMES = st.sampled_from(["at", "error", "message", "attempt", "traceback", "done", "total", "backend", "traceparent"])
TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20
) | st.sampled_from(["?", "?=", "?+x", "\n\x1b[2J", "\u202e", "<script>", "%s", "{0}", "*", "-slow", "a,b"])
INSTANTS = st.sampled_from(["1970-01-01Z", "1970-01-02Z", "2020-01-01Z", "9998-12-31Z", "9999-01-01Z"])


@pytest.fixture
def consumer(transactional_db) -> Iterator[Consumer]:
    """One with slots that run jobs, driven cycle by cycle by the test."""
    shared = SharedState()
    shared.extend_lease(now() + 600)
    with ended():
        made = Consumer(1, (), Slots(4, shared, stdlib_queue.SimpleQueue()), shared)
        yield made
        made.database.close()


def run_until(consumer: Consumer, condition) -> None:
    def looked():
        cycle(consumer)
        return condition()

    eventually(looked)
    eventually(lambda: [cycle(consumer), not consumer._in_flight.held()][1])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("queue", "repeat('q', 129)"), ("task", "repeat('t', 501)"), ("backend", "repeat('b', 501)")),
        *(("fair_key", "repeat('k', 501)"), ("expires_at", "'infinity'"), ("enqueued_at", "'-infinity'")),
        *(("expires_at", "'10000-01-01'"), ("started_at", "'1969-12-31'"), ("lease_until", "'infinity'")),
    ],
)
def test_database_refuses_names_and_times_that_python_would_not_write(sql, column, value):
    named, given = ("task", value) if column == "task" else (f"task, {column}", f"'x', {value}")
    with pytest.raises(IntegrityError, match=r"pgqueue_jobs_(lengths|instants)"):
        sql(f"INSERT INTO pgqueue_jobs ({named}) VALUES ({given})")


@pytest.mark.parametrize("column", ["args", "kwargs", "metadata", "progress", "errors"])
def test_worker_outlives_json_that_python_cannot_read(consumer, sql, column):
    """Of tasks that are known and not, with a backend and without; and what stands behind it in the queue runs."""
    for value in UNREADABLE:
        for task in ("tests.app.tasks.noop", "unknown.task"):
            for backend in ("", "default", "no such alias"):
                if column != "errors" or value.startswith("["):
                    sql(
                        f"INSERT INTO pgqueue_jobs (task, backend, priority, max_attempts, {column}) "
                        "VALUES (%s, %s, 100, 1, %s::jsonb)",
                        *(task, backend, value),
                    )
    good = app.noop.enqueue().id
    run_until(consumer, SucceededJob.objects.filter(pk=good).exists)
    assert not Job.objects.filter(status__in=["queued", "running"]).exists()


def test_job_that_was_lost_as_often_as_can_be_counted_keeps_no_other_from_being_sent_back(queue, sql):
    sql("INSERT INTO pgqueue_jobs (task, lost) VALUES ('tests.app.tasks.noop', 32767)")
    other = app.noop.enqueue().id
    assert len(claim(queue, "default", limit=2, worker_id=1)) == 2
    settle(queue, worker_leases(queue, [1]))
    assert (Job.objects.get().id, Job.objects.get().status) == (other, "queued")
    assert DeadJob.objects.get().lost == 32767


# Whatever a row holds

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXTS, inner, max_size=3), max_leaves=6
).map(lambda value: json.dumps(value, ensure_ascii=False))
ENTRIES = st.builds(
    lambda kind, values: json.dumps({"kind": kind} | values, ensure_ascii=False),
    st.sampled_from(EntryKind) | st.just(["failed"]) | TEXTS,
    st.dictionaries(st.sampled_from([*history.NAMES, "at", "error", "attempt", "worker_id"]), SCALARS, max_size=6),
)
JSON = VALUES | st.sampled_from([*UNREADABLE, "1e400", f'{{"done": {DIGITS}, "total": {DIGITS}}}', "[[[]]]"])


BOUND_TO_OTHERS = {"task", "status", "unique_key", "unique_until", "concurrency_key"}
OF_TEXT_AND_TIME = {
    field.name: {models.TextField: TEXTS, models.DateTimeField: INSTANTS}[type(field)]
    for field in Job._meta.fields
    if type(field) in (models.TextField, models.DateTimeField) and field.name not in BOUND_TO_OTHERS
}


@st.composite
def rows(draw) -> dict:
    """A row with some columns that anything may stand in, of those that a web server may fill, and of all others."""
    row = {"task": draw(st.sampled_from(["tests.app.tasks.record", "tests.app.tasks.log_in", "a.b"]) | TEXTS)}
    row |= {name: draw(JSON) for name in draw(st.sets(st.sampled_from(["args", "kwargs", "metadata", "progress"])))}
    if draw(st.booleans()):
        row["errors"] = draw(st.lists(JSON | ENTRIES, max_size=3).map(lambda values: f"[{','.join(values)}]"))
    columns = OF_TEXT_AND_TIME | {
        "backend": st.sampled_from(["default", "patient", "dummy", "no such alias"]) | TEXTS,
        "priority": st.integers(-100, 100),
        "max_attempts": st.sampled_from([1, 2, 32767]),
        "attempts": st.sampled_from([0, 1, 32766, 32767]),
        "lost": st.sampled_from([0, 1, 32767]),
        "timeout_seconds": st.sampled_from([0, 1, 2**31 - 1]),
        "lease_seconds": st.sampled_from([1, 2**31 - 1]),
        "keep_seconds": st.sampled_from([-(2**31), 0, 2**31 - 1]),
        "parent_id": st.sampled_from([-1, 0, 2**63 - 1]),
        "schedule_id": st.sampled_from([-1, 0, 2**63 - 1]),
        "worker_id": st.sampled_from([-1, 5, 2**63 - 1]),
    }
    return row | {name: draw(columns[name]) for name in draw(st.sets(st.sampled_from(sorted(columns)), max_size=4))}


COLUMNS_OF_JSON = {"args", "kwargs", "metadata", "progress", "errors", "result"}
WHOLE = ("worker_id", "priority", "attempts", "lost")


def insert(sql, table, row) -> None:
    """Insert a row where the database takes it, without the columns that the table lacks."""
    row = {name: value for name, value in row.items() if name in {field.name for field in table._meta.fields}}
    places = ", ".join("%s::jsonb" if name in COLUMNS_OF_JSON else "%s" for name in row)
    with contextlib.suppress(IntegrityError), transaction.atomic():
        sql(f"INSERT INTO {table._meta.db_table} ({', '.join(row)}) VALUES ({places})", *row.values())


def insert_everywhere(sql, number, row) -> None:
    """As a live job, as one that has died, and as one that has succeeded."""
    insert(sql, Job, row)
    ended = {"queue": "default", "run_at": "2026-01-01Z", "enqueued_at": "2026-01-01Z"}
    insert(sql, DeadJob, ended | row | {"id": 10**6 + number, "reason": "exhausted"})
    empty = dict.fromkeys(("args", "errors"), "[]") | dict.fromkeys(("kwargs", "metadata"), "{}") | {"backend": ""}
    begun = dict.fromkeys(("first_started_at", "started_at"), "2026-01-01Z") | dict.fromkeys(WHOLE, 0)
    given = ended | empty | begun | row | {"id": 2 * 10**6 + number, "run_seconds": 1}
    insert(sql, SucceededJob, given | {"result": row.get("progress", "null")})


def look_at_everything(client) -> None:
    """Open all pages that there are for what the tables hold, as staff do."""
    addresses = ["overview/", "queue/", "schedule/", "worker/", "bulkaction/", "deadjob/causes/"]
    for name, model in TABLES.items():
        addresses += [f"{name}/", f"{name}/?q=arg:17", f"{name}/?q=password%3D17", f"{name}/?q=key:17"]
        for one in model.objects.defer(*COLUMNS_OF_JSON & {field.name for field in model._meta.fields}):
            addresses.append(f"{name}/{one.pk}/change/")
            addresses += [f"deadjob/{one.pk}/retry_with/"] if model is DeadJob else []
            addresses.append(f"{name}/?{urlencode({'q': one.task, 'queue': one.queue})}")
    addresses += [f"queue/{quote(name)}/change/" for name in Queue.objects.values_list("name", flat=True)]
    for address in dict.fromkeys(addresses):
        answer = client.get(f"/admin/pgqueue/{address}", follow=True)
        assert answer.status_code < 500, address


def say_everything() -> None:
    for words in (
        *(["pgqueue_stats"], ["pgqueue_queues", "list"], ["pgqueue_retention"], ["pgqueue_doctor"]),
        *(["pgqueue_workers", "list"], ["pgqueue_workers", "list", "--queue", "mail", "--json"]),
    ):
        with contextlib.suppress(CommandError, SystemExit):
            call_command(*words, stdout=io.StringIO(), stderr=io.StringIO())
    for form in ([], ["--json"]):
        call_command("pgqueue_jobs", "list", *form, stdout=io.StringIO())
        for model in TABLES.values():
            for job_id in model.objects.values_list("pk", flat=True):
                call_command("pgqueue_jobs", "show", str(job_id), *form, stdout=io.StringIO())
                jobs.get(job_id).state()
                with contextlib.suppress(TaskResultDoesNotExist):
                    task_backends["default"].get_result(str(job_id))


def do_everything(queue) -> None:
    """Carry bulk actions to their end, those that compare arguments too; none fails by a row."""
    for action, chosen in (
        *((KILL, Filter(argument="17")), (KILL, Filter(argument="17", argument_name="password"))),
        *((RETRY, Filter()), (SET_PRIORITY, Filter()), (MOVE, Filter()), (KILL, Filter()), (PURGE, Filter())),
    ):
        begin(
            action,
            chosen,
            by="ann",
            params={"priority": 5} if action is SET_PRIORITY else {"queue": "x"} if action is MOVE else {},
        )
        while carry_on(queue, limit=1000).bulk_action_id is not None:
            pass
    assert not BulkAction.objects.filter(ended_at=None).exists()
    assert set(BulkAction.objects.values_list("last_error", flat=True)) == {""}


@given(hostile=st.lists(rows(), min_size=2, max_size=4))
@hypothesis.settings(
    max_examples=hypothesis.settings.default.max_examples // 4, suppress_health_check=list(HealthCheck)
)
def test_no_row_ends_a_worker_fails_a_page_a_command_or_a_bulk_action(hostile, consumer, queue, sql, admin_client):
    """And others run on."""
    sql("TRUNCATE pgqueue_jobs, pgqueue_dead_jobs, pgqueue_succeeded_jobs, pgqueue_queues, pgqueue_bulk_actions")
    for number, row in enumerate(hostile):
        insert_everywhere(sql, number, row)
    good = app.noop.enqueue().id
    run_until(consumer, SucceededJob.objects.filter(pk=good).exists)
    look_at_everything(admin_client)
    say_everything()
    do_everything(queue)
