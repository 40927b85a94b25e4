"""Only jobs of the queues and tasks that were named are run."""

import pytest
from django.test import TestCase

from django_pgqueue.exceptions import TaskDoesNotExist
from django_pgqueue.testing import run_jobs
from tests.app import helped
from tests.support.marks import labels


class SelectionTest(TestCase):
    def test_queues_are_served_in_the_order_in_which_they_are_named(self):
        helped.note.using(queue="slow", priority=50).enqueue("slow")
        helped.note.using(queue="mail.in").enqueue("in")
        helped.note.using(queue="mail.out").enqueue("out")
        helped.note.enqueue("default")
        run_jobs(queue=["mail*", "-mail.in", "slow"])
        assert labels() == ["out", "slow"]
        run_jobs(queue="default")
        assert labels() == ["out", "slow", "default"]

    def test_only_jobs_of_the_task_are_run(self):
        helped.note.using(priority=9).enqueue("other")
        helped.one_by_one.enqueue("this")
        assert len(run_jobs(task=helped.one_by_one)) == 1
        assert labels() == ["this"]
        run_jobs(task=[helped.one_by_one, helped.note.name])
        assert labels() == ["this", "other"]

    def test_unknown_task_is_refused(self):
        with pytest.raises(TaskDoesNotExist, match=r"Did you mean 'tests\.app\.helped\.note'"):
            run_jobs(task="tests.app.helped.nota")
        with pytest.raises(TypeError, match="task is a task or the name of one"):
            run_jobs(task=print)
