"""Many jobs of the shape that a busy site has, made by the server itself: what the pages of the admin are measured on.

Ids tell the tables apart: succeeded jobs have even ones, dead jobs odd ones among them, live jobs those above.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Run = Callable[..., Any]
"""Runs one statement with its parameters, given by name."""


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """How many of each."""

    queued: int
    dead: int
    succeeded: int
    stat_days: int = 7
    workflows: int = 10_000
    succeeded_days: int = 10

    @property
    def first_live(self) -> int:
        return 2 * self.succeeded + 1

    def parameters(self) -> dict[str, int]:
        return {
            "queued": self.queued,
            "dead": self.dead,
            "succeeded": self.succeeded,
            "first_live": self.first_live,
            "succeeded_days": self.succeeded_days,
            "stat_minutes": self.stat_days * 1440,
            "workflows": self.workflows,
            "apart": max(self.succeeded // max(self.dead, 1), 1),
        }


QUEUE = "(ARRAY['default', 'mails', 'mails', 'webhooks', 'photos', 'reports', 'default', 'search'])[1 + mod(number, 8)]"
TASK = (
    "(ARRAY['shop.tasks.send_receipt', 'shop.tasks.tell_courier', 'shop.tasks.make_thumbnail', 'shop.tasks.index',"
    " 'books.tasks.count_sale', 'books.tasks.close_day', 'crm.tasks.greet'])[1 + mod(number, 7)]"
)
KWARGS = "jsonb_build_object('customer', mod(number, 99991), 'note', 'Nr. ' || number)"

JOBS = f"""
INSERT INTO pgqueue_jobs (
    id, task, queue, args, kwargs, priority, run_at, enqueued_at, status, lease_token, worker_id, lease_until,
    started_at, first_started_at, attempts, unique_key, unique_until, concurrency_key, concurrency_limit,
    concurrency_slot, errors
)
SELECT
    %(first_live)s + number, {TASK}, {QUEUE}, jsonb_build_array(number), {KWARGS},
    CASE WHEN mod(number, 50) = 0 THEN 10 WHEN mod(number, 50) = 1 THEN -10 ELSE 0 END,
    CASE WHEN kind = 'scheduled' THEN now() + mod(number, 604800) * interval '1 s'
        ELSE now() - (%(queued)s - number) * interval '20 ms' END,
    now() - (%(queued)s - number) * interval '20 ms' - interval '1 s',
    kind,
    CASE WHEN kind = 'running' THEN number ELSE 0 END,
    CASE WHEN kind = 'running' THEN 1 + mod(number, 20) ELSE 0 END,
    now() + interval '1 day',
    CASE WHEN kind = 'running' THEN now() - mod(number, 600) * interval '1 s' ELSE '1970-01-01+00'::timestamptz END,
    CASE WHEN kind = 'running' THEN now() - mod(number, 900) * interval '1 s' ELSE '1970-01-01+00'::timestamptz END,
    CASE WHEN kind = 'running' THEN 1 + mod(number, 3) ELSE 0 END,
    CASE WHEN mod(number, 20) = 7 THEN 'order-' || number END,
    CASE WHEN mod(number, 20) = 7 THEN 'end' END,
    CASE WHEN kind = 'limited' THEN 'customer-' || mod(number, 997) END,
    CASE WHEN kind = 'limited' THEN 1 END,
    NULL,
    '[]'
FROM (
    SELECT number, CASE
        WHEN number > %(queued)s - 160 THEN 'running'
        WHEN mod(number, 40) = 3 THEN 'scheduled'
        WHEN mod(number, 100) = 9 THEN 'limited'
        ELSE 'queued' END AS kind
    FROM generate_series(1, %(queued)s) AS number
) AS job
"""

DEAD = f"""
INSERT INTO pgqueue_dead_jobs (
    id, died_at, run_at, enqueued_at, first_started_at, started_at, worker_id, attempts, lost, reason, queue, task,
    args, kwargs, unique_key, unique_until, errors, schedule_id
)
SELECT
    2 * number * %(apart)s - 1, died_at, died_at - interval '1 min', died_at - interval '2 min',
    died_at - interval '1 min', died_at - interval '1 s', 1 + mod(number, 20),
    CASE WHEN reason = 'exhausted' THEN 10 ELSE 1 END, CASE WHEN reason = 'lost' THEN 3 ELSE 0 END, reason, {QUEUE},
    {TASK}, jsonb_build_array(number), {KWARGS},
    CASE WHEN mod(number, 20) = 7 THEN 'order-' || number END, CASE WHEN mod(number, 20) = 7 THEN 'end' END,
    jsonb_build_array(jsonb_build_object(
        'at', died_at, 'attempt', 10,
        'error', (ARRAY['ValueError', 'shop.tasks.RefusedError', 'TimeoutError', 'KeyError'])[1 + mod(number, 4)],
        'message', (ARRAY['no such order: ', '503: closed, parcel '])[1 + mod(number, 2)] || number,
        'traceback', repeat('  File "shop/tasks.py", line 17, in tell_courier' || chr(10), 6)
    )),
    CASE WHEN mod(number, 500) = 0 THEN 1 + mod(number / 500, 40) END
FROM (
    SELECT number, now() - (%(dead)s - number) * interval '3 days' / %(dead)s AS died_at,
        (ARRAY['exhausted', 'exhausted', 'exhausted', 'discarded', 'killed', 'lost', 'expired'])[1 + mod(number, 7)]
            AS reason
    FROM generate_series(1, %(dead)s) AS number
) AS job
"""

SUCCEEDED = f"""
INSERT INTO pgqueue_succeeded_jobs (
    id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, worker_id, run_seconds, priority, attempts,
    lost, queue, task, backend, args, kwargs, result, metadata, errors, schedule_id
)
SELECT
    2 * number, at, at - interval '2 s', at - interval '2 s', at - interval '1 s', at - interval '1 s',
    1 + mod(number, 20), 0.01 * mod(number, 100), 0, 1, 0, {QUEUE}, {TASK}, '', jsonb_build_array(number), {KWARGS},
    'true', '{{}}', '[]', CASE WHEN mod(number, 200) = 0 THEN 1 + mod(number / 200, 40) END
FROM (
    SELECT number,
        now() - (%(succeeded)s - number) * %(succeeded_days)s * interval '1 day' / %(succeeded)s AS at
    FROM generate_series(1, %(succeeded)s) AS number
) AS job
"""

STATS = f"""
INSERT INTO pgqueue_stats (minute, queue, task, succeeded, failed, retried, died, lost, wait_seconds, run_seconds)
SELECT
    date_trunc('minute', now()) - ago * interval '1 min', {QUEUE}, {TASK}, 100 + mod(ago, 60), mod(ago, 9), mod(ago, 7),
    mod(ago, 3), mod(ago, 50) / 49, 30 + mod(ago, 11), 60 + mod(ago, 13)
FROM generate_series(0, %(stat_minutes)s) AS ago, generate_series(1, 12) AS number
ON CONFLICT DO NOTHING
"""

QUEUES = f"""
INSERT INTO pgqueue_queues (name, rate_limit, rate_period_seconds, rate_burst, max_running)
SELECT DISTINCT {QUEUE}, NULL::int, NULL::float, NULL::int, NULL::int FROM generate_series(1, 8) AS number
ON CONFLICT DO NOTHING
"""

LIMITS = """
UPDATE pgqueue_queues SET
    paused_at = CASE WHEN name = 'photos' THEN now() END,
    paused_by = CASE WHEN name = 'photos' THEN 'eve' ELSE '' END,
    pause_reason = CASE WHEN name = 'photos' THEN 'the disk is full' ELSE '' END,
    rate_limit = CASE WHEN name = 'mails' THEN 100 END,
    rate_period_seconds = CASE WHEN name = 'mails' THEN 1 END,
    rate_burst = CASE WHEN name = 'mails' THEN 100 END,
    max_running = CASE WHEN name = 'webhooks' THEN 20 END
"""

WORKERS = """
INSERT INTO pgqueue_workers (id, supervisor_id, pid, host, version, concurrency, lease_until, started_at, memory_bytes)
SELECT number, 1 + mod(number, 5), 1000 + number, 'web-' || mod(number, 5), '0.1.0', 8, now() + interval '1 day',
    now() - interval '1 day', 80000000 + number
FROM generate_series(1, 20) AS number
"""

SCHEDULES = f"""
INSERT INTO pgqueue_schedules (id, name, task, cron, every_seconds, next_at, last_at, last_job_id)
SELECT number, 'schedule ' || number, {TASK}, CASE WHEN mod(number, 2) = 0 THEN '30 2 * * 1-5' ELSE '' END,
    CASE WHEN mod(number, 2) = 1 THEN 3600 END, now() + number * interval '1 min', now() - interval '1 hour',
    2 * 200 * number
FROM generate_series(1, 40) AS number
"""

BULK_ACTIONS = """
INSERT INTO pgqueue_bulk_actions (action, source, by, filter, looked, done, expected, started_at, ended_at)
SELECT 'retry', 'dead', 'eve', '{"queues": ["mails"]}', 5000, 4000, 4000, now() - interval '1 hour',
    now() - interval '50 min'
FROM generate_series(1, 200)
"""

WORKFLOWS = """
INSERT INTO pgqueue_workflows (id, name, status, begun_at, ended_at, deadline_at, unique_key)
SELECT number, 'import ' || mod(number, 20), CASE WHEN mod(number, 10) = 0 THEN 'open' ELSE 'succeeded' END, now(),
    CASE WHEN mod(number, 10) <> 0 THEN now() END, CASE WHEN mod(number, 100) = 0 THEN now() - interval '1 s' END,
    'import-' || number
FROM generate_series(1, %(workflows)s) AS number
"""

STAGES = """
INSERT INTO pgqueue_stages (id, name, status, members, opened_at, ended_at)
SELECT number * 65536 + 2 * stage, 'stage ' || stage,
    CASE WHEN mod(number, 10) <> 0 THEN 'ended' WHEN stage = 0 THEN 'open' ELSE 'blocked' END, 10000, now(), now()
FROM generate_series(1, %(workflows)s) AS number, generate_series(0, 3) AS stage
"""

EDGES = """
INSERT INTO pgqueue_stage_edges (from_id, to_id)
SELECT number * 65536 + 2 * stage, number * 65536 + 2 * stage + 2
FROM generate_series(1, %(workflows)s) AS number, generate_series(0, 2) AS stage
"""

MEMBERS = """
UPDATE pgqueue_jobs
SET stage_id = %(workflows)s * 65536
WHERE mod(id, 2) = 0
"""

DEAD_MEMBERS = """
UPDATE pgqueue_dead_jobs
SET stage_id = %(workflows)s * 65536
WHERE mod(id, 5) = 0
"""

EVERYTHING = (
    JOBS,
    DEAD,
    SUCCEEDED,
    STATS,
    QUEUES,
    LIMITS,
    WORKERS,
    SCHEDULES,
    BULK_ACTIONS,
    WORKFLOWS,
    STAGES,
    EDGES,
    MEMBERS,
    DEAD_MEMBERS,
)


def fill(crowd: Crowd, run: Run) -> None:
    """Fill empty tables; the caller takes statistics. Live jobs get ids above those that their sequence gives."""
    for statement in EVERYTHING:
        run(statement, crowd.parameters())
    run(
        "SELECT setval(pg_get_serial_sequence('pgqueue_jobs', 'id'), %(last)s)",
        {"last": crowd.first_live + crowd.queued},
    )
