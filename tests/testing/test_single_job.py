"""Code of a test that runs as that of a job."""

import asyncio
import contextlib

import pytest
from django.test import TestCase
from django.utils import translation

from django_pgqueue import Discard, current_job, is_in_job, task
from django_pgqueue.exceptions import InvalidArguments, TaskDoesNotExist
from django_pgqueue.models import Job
from django_pgqueue.testing import as_job, immediate, override_pgqueue, run_job
from tests.app import contract, helped
from tests.support.marks import labels


@task
def database_here():
    return current_job().database


def test_code_has_a_job_in_the_block_and_not_after():
    with as_job(attempt=3, metadata={"order": 7}) as job:
        assert current_job() is job
        assert (job.id, job.attempt, job.max_attempts, job.task, job.queue) == (0, 3, 10, "", "default")
        assert (job.metadata, job.is_kill_requested) == ({"order": 7}, False)
    assert not is_in_job()


def test_job_is_that_of_a_task():
    for given in (helped.note.using(queue="mail", max_attempts=2, metadata={"a": 1}), "tests.app.helped.note"):
        with as_job(given, is_kill_requested=True) as job:
            assert (job.task, job.is_kill_requested) == ("tests.app.helped.note", True)
    with as_job(helped.note.using(queue="mail", max_attempts=2, metadata={"a": 1}), attempt=3) as job:
        assert (job.queue, job.attempt, job.max_attempts, job.metadata) == ("mail", 3, 3, {"a": 1})


def test_job_is_on_the_database_of_its_queue(settings):
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {"other": {"number": 1, "queues": ["abroad"]}}}
    for given in (database_here.using(queue="abroad"), database_here.using(database="other")):
        assert run_job(given.bind()) == "other"
        with as_job(given):
            assert database_here() == "other"
    assert run_job(database_here.bind()) == "default"


def test_what_the_code_tells_is_kept_with_the_job():
    with as_job(metadata={"a": 1}) as job:
        current_job().set_progress(1, 2, "half")
        current_job().update_metadata(b=2)
    assert job.progress == {"done": 1, "total": 2, "message": "half"}
    assert job.metadata == {"a": 1, "b": 2}


def test_jobs_may_be_inside_of_each_other():
    with as_job(attempt=1), as_job(attempt=2):
        assert current_job().attempt == 2


@as_job(attempt=2)
def test_functions_are_decorated():
    assert current_job().attempt == 2


@as_job(attempt=2)
async def attempt_after_a_pause() -> int:
    await asyncio.sleep(0)
    return current_job().attempt


def test_coroutine_functions_are_decorated():
    async def both() -> list[int]:
        return await asyncio.gather(attempt_after_a_pause(), attempt_after_a_pause())

    assert asyncio.run(both()) == [2, 2]
    assert not is_in_job()


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "1", None])
def test_attempt_is_counted_from_one(wrong):
    with pytest.raises(ValueError, match="attempt is a whole number of 1 or more, not"), as_job(attempt=wrong):
        pass


def test_unknown_task_is_told():
    with pytest.raises(TaskDoesNotExist), as_job("no.such.task"):
        pass


@task(backoff=9)
def arguments(*args, **kwargs):
    return args, kwargs, current_job().attempt, current_job().metadata


def test_function_runs_as_that_of_a_job():
    call = arguments.using(metadata={"a": 1}).bind((1, 2), key={3: None})
    assert run_job(call, attempt=3) == (([1, 2],), {"key": {"3": None}}, 3, {"a": 1})
    assert run_job(call, metadata={}) == (([1, 2],), {"key": {"3": None}}, 1, {})
    assert not is_in_job()


def test_arguments_of_the_function_are_json():
    with pytest.raises(InvalidArguments, match="Cannot be stored as JSON"):
        run_job(arguments.bind(object()))


@pytest.mark.parametrize("wrong", [0, True, "1"])
def test_attempt_of_the_function_is_counted_from_one(wrong):
    with pytest.raises(ValueError, match="attempt is a whole number of 1 or more"):
        run_job(arguments.bind(), attempt=wrong)


@pytest.mark.parametrize(
    "wrong",
    [helped.note, contract.add, "tests.app.helped.note", None],
    ids=["a function", "a task of Django", "a name", "None"],
)
def test_what_is_no_call_is_told_how_one_is_made(wrong):
    with pytest.raises(TypeError, match=r"made by bind\(\), as in run_job\(send\.bind\(1\)\), not "):
        run_job(wrong)


def test_what_the_function_leaves_in_its_context_is_gone():
    before = translation.get_language()
    run_job(helped.tell.bind())
    assert translation.get_language() == before


class RunJobTest(TestCase):
    def test_error_of_the_function_is_raised(self):
        with pytest.raises(ValueError, match="no luck with x"):
            run_job(helped.fail.bind("x"))
        with pytest.raises(ValueError, match="no luck with x"):
            run_job(helped.afail.bind("x"))
        with pytest.raises(Discard):
            run_job(helped.discard.bind())
        assert labels() == ["x", "x"]

    def test_atomic_task_leaves_nothing_when_it_fails(self):
        with pytest.raises(ValueError, match="x"):
            run_job(helped.note_atomic.bind("x", fails=True))
        run_job(helped.note_atomic.bind("y"))
        assert labels() == ["y"]

    def test_coroutine_is_awaited(self):
        assert run_job(helped.anote.bind("x")) == "x"
        assert labels() == ["x"]

    def test_context_is_given(self):
        assert run_job(helped.note_context.bind("x", times=2), attempt=2) == (2, "xx")
        assert run_job(helped.anote_context.bind("y"), attempt=3) == (3, "y")
        assert labels() == ["x", "y"]

    def test_task_of_the_framework_runs_likewise(self):
        told = run_job(contract.tell.bind("x"), attempt=2)
        assert (told["attempt"], told["args"]) == (2, ["x"])

    def test_context_managers_of_the_settings_are_around(self):
        seen = []
        with override_pgqueue(MIDDLEWARE=[lambda job: contextlib.nullcontext(seen.append(job.arguments))]):
            run_job(helped.note.bind("x"))
            run_job(helped.anote.bind("y"))
        assert seen == [{"label": "x", "times": 1, "password": ""}, {"label": "y"}]

    def test_nothing_is_enqueued(self):
        run_job(helped.note.bind("x"))
        assert not Job.objects.exists()


class EnqueueingTest(TestCase):
    def test_job_without_a_row_is_no_parent(self):
        with as_job():
            helped.note.enqueue("child")
        assert Job.objects.get().parent_id is None

    def test_its_jobs_run_in_immediate_mode(self):
        with immediate(), as_job():
            helped.note.enqueue("child")
        assert labels() == ["child"]
