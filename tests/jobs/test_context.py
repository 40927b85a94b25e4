"""The job that a task runs: what it knows of it, tells of its progress, and when it is to run again."""

import asyncio
import datetime as dt
import math
import threading

import pytest

import tests.app.tasks as app
from django_pgqueue import current_job, is_in_job, track
from django_pgqueue.exceptions import InvalidArguments, InvalidOption, NoCurrentJob
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob, entered
from tests.app import helped
from tests.app.models import Mark
from tests.support.claimed import job, outcome_of


@pytest.fixture
def claimed_alone(queue):
    app.noop.enqueue()
    [claimed] = claim(queue, "default", limit=1, worker_id=1)
    return CurrentJob(claimed)


def test_current_job_is_known_while_it_runs_and_not_after():
    seen = []
    outcome_of(lambda: seen.extend([current_job(), is_in_job()]), job(attempt=2))
    current, was_in_job = seen
    assert (current.id, current.attempt, current.max_attempts, current.is_kill_requested) == (1, 2, 3, False)
    assert (was_in_job, is_in_job()) == (True, False)


def test_code_outside_of_a_job_is_told_how_to_be_inside():
    with pytest.raises(NoCurrentJob, match=r"is_in_job\(\) first; a test enters one by testing.as_job\(\)") as caught:
        current_job()
    assert isinstance(caught.value, LookupError)


def test_thread_of_a_task_has_no_current_job():
    seen = []

    def start():
        thread = threading.Thread(target=lambda: seen.append(is_in_job()))
        thread.start()
        thread.join()

    outcome_of(start)
    assert seen == [False]


@pytest.mark.django_db(transaction=True)
def test_current_job_knows_its_metadata(queue):
    for given in ({"order": {"id": 7}}, {}):
        app.noop.using(metadata=given).enqueue()
        [claimed] = claim(queue, "default", limit=1, worker_id=1)
        assert CurrentJob(claimed).metadata == given


@pytest.mark.parametrize("given", ["[]", "5", "null", '"x"', "[1]"])
@pytest.mark.django_db(transaction=True)
def test_metadata_that_is_no_object_is_taken_for_none(queue, sql, given):
    sql("INSERT INTO pgqueue_jobs (task, metadata) VALUES (%s, %s::jsonb)", app.noop.name, given)
    [claimed] = claim(queue, "default", limit=1, worker_id=1)
    current = CurrentJob(claimed)
    assert current.metadata == {}
    current.update_metadata(a=1)
    assert current.metadata == {"a": 1}


@pytest.mark.parametrize(
    "when", [-1, -dt.timedelta(hours=1), float("nan"), float("inf"), 1e300, True, "soon", dt.timedelta(36501)]
)
def test_delay_that_cannot_be_is_refused(when):
    with pytest.raises(InvalidOption, match=r"The delay of repeat\(\) is 0 or more seconds or a timedelta"):
        CurrentJob(None).repeat(delay=when)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (dt.datetime(2026, 1, 1), r"at of repeat\(\) is naive"),
        (5, "is a datetime, not 5. From now it is delay="),
        (dt.timedelta(1), "is a datetime, not "),
        (dt.datetime.max.replace(tzinfo=dt.UTC), "is between the years 1970 and 9999"),
    ],
    ids=str,
)
def test_time_that_cannot_be_is_refused(at, message):
    with pytest.raises(InvalidOption, match=message):
        CurrentJob(None).repeat(at=at)


def test_next_job_has_a_delay_or_a_time():
    with pytest.raises(InvalidOption, match="either delay or at"):
        CurrentJob(None).repeat(delay=0, at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, 10**18 + 1, True, "1", None])
def test_done_is_a_number_from_zero(wrong):
    with pytest.raises(InvalidOption, match="The done of set_progress is a number from 0 to"):
        CurrentJob(None).set_progress(wrong)


@pytest.mark.parametrize("wrong", [-0.1, math.nan, math.inf, False, "1"])
def test_total_is_a_number_from_zero_or_none(wrong):
    with pytest.raises(InvalidOption, match="The total of set_progress is a number from 0 to"):
        CurrentJob(None).set_progress(1, wrong)


@pytest.mark.parametrize("wrong", ["x" * 501, 7, None, b"x"])
def test_message_is_a_short_text(wrong):
    with pytest.raises(InvalidOption, match="a text of 500 characters at most"):
        CurrentJob(None).set_progress(1, message=wrong)


@pytest.mark.parametrize("wrong", ["a\0", "\ud800"])
def test_message_is_text_that_the_database_can_store(wrong):
    with pytest.raises(InvalidOption, match="which is not text"):
        CurrentJob(None).set_progress(1, message=wrong)


def test_arguments_are_known_by_name():
    given = job("[1]", '{"times": 2}', task=helped.note.name)
    assert CurrentJob(given).arguments == {"label": 1, "times": 2, "password": ""}
    assert CurrentJob(given._replace(task="unknown")).arguments == {"times": 2}
    with pytest.raises(InvalidArguments, match=r"tests\.app\.helped\.note takes .* too many positional"):
        _ = CurrentJob(given._replace(args="[1, 2]")).arguments


def test_metadata_is_not_written_to(claimed_alone):
    claimed_alone.update_metadata(a=1)
    assert claimed_alone.metadata == {"a": 1}
    with pytest.raises(TypeError, match="does not support item assignment"):
        claimed_alone.metadata["b"] = 2


@pytest.mark.django_db
def test_metadata_may_be_given_to_another_job(claimed_alone):
    claimed_alone.update_metadata(a=1)
    handle = app.noop.using(metadata=claimed_alone.metadata).enqueue()
    assert handle.state().metadata == {"a": 1}


def told(loop):
    """Return the progress after each row of a loop that is a job's."""
    with entered(CurrentJob(job())):
        seen = [current_job().progress for _ in loop]
        return [*seen, current_job().progress]


def test_loop_tells_how_many_rows_are_done():
    first, second, last = told(track(["a", "b"], message="rows"))
    assert first is None
    assert second == {"done": 1, "total": 2, "message": "rows"}
    assert last == {"done": 2, "total": 2, "message": "rows"}


def test_total_of_a_loop_is_given_or_not_known():
    assert told(track(iter("ab"), total=5))[-1] == {"done": 2, "total": 5, "message": ""}
    assert told(track(iter("ab")))[-1] == {"done": 2, "total": None, "message": ""}
    with pytest.raises(InvalidOption, match="The total of set_progress"):
        told(track("ab", total=-1))


def test_async_loop_tells_likewise():
    async def rows():
        yield "a"
        yield "b"

    async def loop():
        return [row async for row in track(rows(), total=2)]

    with entered(CurrentJob(job())):
        assert asyncio.run(loop()) == ["a", "b"]
        assert current_job().progress == {"done": 2, "total": 2, "message": ""}


def test_loop_outside_of_a_job_is_only_a_loop():
    assert list(track("ab", total=-1)) == ["a", "b"]


@pytest.mark.django_db
def test_loop_over_a_queryset_asks_the_database_once(django_assert_num_queries):
    Mark.objects.create(job_id=1)
    with django_assert_num_queries(1):
        assert told(track(Mark.objects.all()))[-1] == {"done": 1, "total": 1, "message": ""}


@pytest.mark.parametrize("wrong", [{"a": {1}}, {"a": math.nan}, {"a": "\0"}, {"a": "x" * (1024 * 1024)}])
def test_metadata_is_json_of_a_size(claimed_alone, wrong):
    with pytest.raises(InvalidArguments, match="metadata"):
        claimed_alone.update_metadata(**wrong)
    assert (claimed_alone.metadata, claimed_alone.has_told) == ({}, False)


def test_idempotency_key_is_of_the_job_and_not_of_the_attempt(settings):
    first = job("[]", "{}")._replace(id=17, attempt=1)
    assert CurrentJob(first).idempotency_key == CurrentJob(first._replace(attempt=2, lease_token=9)).idempotency_key
    assert CurrentJob(first).idempotency_key == "job-17"
    settings.PGQUEUE = {"IDEMPOTENCY_PREFIX": "shop-live-"}
    assert CurrentJob(first).idempotency_key == "shop-live-17"


def test_idempotency_key_of_a_job_without_a_row_is_like_no_other():
    without_row = job("[]", "{}")._replace(id=0)
    current = CurrentJob(without_row)
    assert current.idempotency_key == current.idempotency_key
    assert current.idempotency_key != CurrentJob(without_row).idempotency_key
