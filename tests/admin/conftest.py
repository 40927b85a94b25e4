"""Users of the pages of jobs, tables with many of them, queues, a worker."""

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin import keyset
from django_pgqueue.admin.job_tables import JobsAdmin
from django_pgqueue.models import Queue, SucceededJob, Worker
from tests.support.admin_jobs import HOUR
from tests.support.admin_queues import ODD
from tests.support.job_lists import succeeded
from tests.support.staff import user_with


@pytest.fixture
def viewer(db) -> Client:
    return user_with("view_job", "view_deadjob", "view_succeededjob")


@pytest.fixture
def staff(db) -> Client:
    return user_with("view_job", "view_deadjob", "run_now_job", "kill_job", "retry_deadjob")


@pytest.fixture
def short(monkeypatch) -> None:
    """Have pages of 7 jobs and windows of 40."""
    monkeypatch.setattr(JobsAdmin, "list_per_page", 7)
    monkeypatch.setattr(keyset, "WINDOW", 40)


@pytest.fixture
def many(sql) -> None:
    """Make 30 jobs of each status, as many dead and succeeded ones, with ties in each order."""
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, status, run_at, priority, lease_token, worker_id, concurrency_key, "
        "concurrency_limit, concurrency_slot) SELECT 'shop.task_' || n % 3, 'q' || n % 2, kind, "
        "'2031-01-01T00:00Z'::timestamptz + n % 4 * interval '1 ms', n % 3, CASE kind WHEN 'running' THEN 1 ELSE 0 "
        "END, n % 5, CASE kind WHEN 'limited' THEN 'key ' || n % 4 END, CASE kind WHEN 'limited' THEN 1 END, NULL "
        "FROM generate_series(1, 30) AS n, "
        "unnest(ARRAY['scheduled', 'queued', 'limited', 'running', 'reserved']) AS kind"
    )
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, task, queue, reason, died_at, run_at, enqueued_at) SELECT n, "
        "'shop.task_' || n % 3, 'q' || n % 2, CASE WHEN n % 10 = 0 THEN 'killed' ELSE 'lost' END, "
        "'2031-01-01T00:00Z'::timestamptz + n % 4 * interval '1 ms', now(), now() FROM generate_series(1, 100) AS n"
    )
    SucceededJob.objects.bulk_create(
        [succeeded(number, task=f"shop.task_{number % 3}", queue=f"q{number % 2}") for number in range(1, 101)]
    )


@pytest.fixture
def queues() -> list[str]:
    names = ["default", "mail", ODD]
    Queue.objects.bulk_create(Queue(name=name) for name in names)
    return names


@pytest.fixture
def worker(db) -> Worker:
    return Worker.objects.create(
        supervisor_id=1, lease_until=timezone.now() + HOUR, pid=4711, concurrency=4, host="web-7", version="1"
    )
