"""assert_enqueued and assert_not_enqueued find what is to run, and each fails when it should."""

import datetime as dt
import json
from unittest import mock

import pytest
from django.db import transaction
from django.test import TestCase, override_settings
from django.utils import timezone

from django_pgqueue.exceptions import TaskDoesNotExist
from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, enqueued, run_jobs
from tests.app import helped
from tests.support.schedules import HOUR


class Texts(json.JSONEncoder):
    def default(self, o):
        return str(o)


class AssertEnqueuedTest(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.before = helped.note.using(queue="early").enqueue("before")

    def test_job_is_found_and_returned(self):
        handle = helped.note.enqueue("a", times=2)
        assert assert_enqueued(helped.note, args=("a",), kwargs={"times": 2}).pk == handle.id
        assert assert_enqueued(helped.note.name, queue="default").pk == handle.id
        assert assert_enqueued(queue="default", priority=0).pk == handle.id

    def test_jobs_enqueued_before_the_test_count(self):
        assert assert_enqueued(helped.note).pk == self.before.id
        helped.note.enqueue("a")
        assert assert_enqueued(helped.note, count=2).pk == self.before.id
        with pytest.raises(AssertionError, match=r"^2 jobs are to run, not 1, that is of tests\.app\.helped\.note"):
            assert_enqueued(helped.note, count=1)

    def test_all_jobs_are_returned_in_the_order_in_which_they_were_enqueued(self):
        helped.note.using(queue="mail").enqueue("a")
        helped.fail.enqueue()
        assert [job.args for job in enqueued(helped.note)] == [["before"], ["a"]]
        assert [job.args for job in enqueued(queue="mail")] == [["a"]]
        assert len(enqueued()) == 3
        assert enqueued(helped.note, args=("b",)) == []

    def test_none_is_no_count(self):
        with pytest.raises(ValueError, match=r"count is 1 or more, not 0; .* assert_not_enqueued\(\)"):
            assert_enqueued(helped.fail, count=0)

    def test_same_call_is_the_same_however_it_is_written(self):
        helped.note.enqueue(label="a", times=1)
        assert_enqueued(helped.note, args=("a",))
        assert_enqueued(helped.note, kwargs={"label": "a"})
        assert_enqueued(helped.note, args=["a"], kwargs={"password": ""})
        assert_enqueued(helped.note, args=(mock.ANY,), kwargs={"times": mock.ANY}, count=2)

    def test_any_is_any_where_an_encoder_writes_everything_as_text(self):
        helped.note.enqueue("a")
        with override_settings(PGQUEUE={"JSON_ENCODER": f"{__name__}.Texts"}):
            assert_enqueued(helped.note, args=(mock.ANY,), count=2)
            with pytest.raises(AssertionError):
                assert_not_enqueued(helped.note, args=(mock.ANY,))

    def test_call_is_given_as_a_value(self):
        handle = helped.note.using(queue="mail").enqueue("a", times=2)
        call = helped.note.bind("a", times=2)
        assert assert_enqueued(call).pk == handle.id
        assert [job.pk for job in enqueued(call, queue="mail")] == [handle.id]
        assert_not_enqueued(call, queue="default")
        assert_not_enqueued(helped.note.bind("a"))
        assert_enqueued(helped.note.bind(mock.ANY, times=mock.ANY), count=2)
        with pytest.raises(AssertionError, match=r"of tests\.app\.helped\.note, called with \('a'\)\.\n"):
            assert_enqueued(helped.note.bind("a"))
        with pytest.raises(TypeError, match=r"<Call tests\.app\.helped\.note\('a'\)> has its arguments"):
            assert_enqueued(helped.note.bind("a"), kwargs={"times": 2})

    def test_call_is_compared_as_a_whole(self):
        helped.note.enqueue("a", times=2)
        for call in (
            {"args": ("a",)},
            {"args": ("b",), "kwargs": {"times": 2}},
            {"kwargs": {"times": 2}},
            {"args": ()},
        ):
            assert_not_enqueued(helped.note, **call)

    def test_values_are_compared_as_json_has_them(self):
        helped.note.enqueue(("a", {1: [None]}))
        assert_enqueued(helped.note, args=(("a", {1: (None,)}),))
        assert_enqueued(args=(["a", {"1": [None]}],))
        with override_settings(PGQUEUE={"JSON_ENCODER": "django.core.serializers.json.DjangoJSONEncoder"}):
            helped.note.enqueue(dt.date(2030, 1, 1))
            assert_enqueued(helped.note, args=(dt.date(2030, 1, 1),))
            assert_enqueued(helped.note, args=("2030-01-01",))

    def test_due_time_is_compared(self):
        moment = timezone.now() + HOUR
        helped.note.using(run_at=moment).enqueue("at")
        helped.note.using(delay=3 * HOUR).enqueue("after")
        assert_enqueued(helped.note, args=("at",), run_at=moment, tolerance=0)
        assert_enqueued(args=("at",), run_at=moment + dt.timedelta(seconds=1))
        assert_enqueued(args=("after",), delay=3 * HOUR, tolerance=0)
        assert_enqueued(args=("before",), delay=dt.timedelta())
        assert_not_enqueued(args=("at",), run_at=moment + dt.timedelta(seconds=1.001))
        assert_enqueued(args=("at",), run_at=moment + dt.timedelta(minutes=1), tolerance=dt.timedelta(minutes=1))
        with pytest.raises(AssertionError, match=r"but due 3:00:00 after it was enqueued"):
            assert_enqueued(args=("after",), delay=2 * HOUR)
        with pytest.raises(ValueError, match="naive"):
            assert_enqueued(run_at=dt.datetime(2030, 1, 1))
        with pytest.raises(TypeError, match="From when the job was enqueued it is delay="):
            assert_enqueued(run_at=HOUR)
        with pytest.raises(ValueError, match="give one of them"):
            assert_enqueued(run_at=moment, delay=60)
        with pytest.raises(ValueError, match="delay is 0 or more seconds"):
            assert_enqueued(delay=-60)
        assert_enqueued(args=("after",), delay=3 * 3600)

    def test_other_options_are_compared(self):
        helped.note.using(queue="q", priority=3, unique_key="k", limit_key="l", fair_key="f").enqueue("a")
        assert_enqueued(helped.note, queue="q", priority=3, unique_key="k", limit_key="l", fair_key="f")
        for other in ({"queue": "x"}, {"priority": 0}, {"unique_key": "x"}, {"limit_key": "x"}, {"fair_key": "x"}):
            assert_not_enqueued(args=("a",), **other)
        with pytest.raises(AssertionError, match=r"with limit key 'x'(?s:.*)but with limit_key='l'"):
            assert_enqueued(helped.note, args=("a",), limit_key="x")

    def test_job_that_is_run_is_not_to_run_any_more(self):
        run_jobs()
        with pytest.raises(AssertionError) as raised:
            assert_enqueued(helped.note)
        assert str(raised.value).splitlines() == [
            "No job is to run that is of tests.app.helped.note.",
            "No job is to run at all.",
            "Of this task are not to run any more: 1 succeeded.",
        ]

    def test_failure_lists_what_is_there_with_the_nearest_first(self):
        far = helped.fail.enqueue("a")
        near = helped.note.using(queue="mail", priority=5).enqueue("a")
        with pytest.raises(AssertionError) as raised:
            assert_enqueued(helped.note, args=("a",), queue="mail", priority=4)
        assert str(raised.value).splitlines() == [
            "No job is to run that is of tests.app.helped.note, called with ('a'), on 'mail', with priority 4.",
            "To run are, the nearest first:",
            f"  job {near.id}: tests.app.helped.note('a') on 'mail', priority 5, queued, due at once",
            "    but with priority=5",
            f"  job {self.before.id}: tests.app.helped.note('before') on 'early', queued, due at once",
            "    but with other arguments, and with queue='early', and with priority=0",
            f"  job {far.id}: tests.app.helped.fail('a') on 'default', queued, due at once",
            "    but of another task, and with queue='default', and with priority=0",
        ]

    def test_failure_does_not_list_without_an_end(self):
        helped.note.enqueue_many([(str(number),) for number in range(30)])
        with pytest.raises(AssertionError, match=r"\.\.\. and 21 more$"):
            assert_enqueued(queue="nowhere")
        with pytest.raises(AssertionError, match=r"\.\.\. and 21 more$"):
            assert_not_enqueued()

    def test_failure_says_what_waits_for_a_commit(self):
        transaction.on_commit(lambda: helped.fail.enqueue())
        with pytest.raises(AssertionError, match=r"A callback of on_commit\(\) waits for a commit"):
            assert_enqueued(helped.fail)
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: helped.fail.enqueue())
        assert_enqueued(helped.fail)

    def test_failure_leaves_out_sensitive_arguments(self):
        helped.pay.using(unique_key="4111-1111").enqueue("4111-1111", 3)
        with pytest.raises(AssertionError) as raised:
            assert_enqueued(helped.pay, args=("4222-2222", 3))
        assert "4111-1111" not in str(raised.value)
        assert "4222-2222" not in str(raised.value)
        assert "called with ('[redacted]', 3)" in str(raised.value)
        assert "pay('[redacted]', 3) on 'default', unique key '[redacted]'" in str(raised.value)
        with pytest.raises(AssertionError) as raised:
            assert_not_enqueued(helped.pay)
        assert "4111-1111" not in str(raised.value)

    def test_jobs_that_should_not_be_there_are_listed(self):
        with pytest.raises(AssertionError) as raised:
            assert_not_enqueued(helped.note)
        assert str(raised.value).splitlines() == [
            "A job is to run that should not be: of tests.app.helped.note.",
            f"  job {self.before.id}: tests.app.helped.note('before') on 'early', queued, due at once",
        ]

    def test_unknown_name_is_refused(self):
        for helper in (assert_enqueued, assert_not_enqueued):
            with pytest.raises(TaskDoesNotExist):
                helper("tests.app.helped.nota")
            with pytest.raises(TypeError, match="args is a tuple"):
                helper(helped.note, args="a")

    def test_misspelt_argument_is_named_with_the_assertion_and_what_it_takes(self):
        columns = "task, args, kwargs, queue, run_at, delay, tolerance, priority, unique_key, limit_key, fair_key"
        for helper, wrong, rest in (
            (assert_enqueued, {"quee": "mail"}, "count, database"),
            (assert_not_enqueued, {"count": 0}, "database"),
        ):
            with pytest.raises(TypeError) as raised:
                helper(helped.note, **wrong)
            (name,) = wrong
            assert str(raised.value) == f"{helper.__name__}() has no argument {name}; it takes {columns}, {rest}."

    def test_database_must_be_one_of_the_test(self):
        with pytest.raises(Exception, match="not allowed"):
            assert_enqueued(database="other")
