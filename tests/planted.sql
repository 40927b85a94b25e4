-- A small shop with trouble on purpose, for the answers of docs/how-to/ask-in-sql.md. Run by
-- tests/test_sql_for_people.py on empty tables; the clock is the database's, so ages are the same whenever it runs.

INSERT INTO pgqueue_workers (id, supervisor_id, pid, concurrency, host, version, queues, started_at, heartbeat_at, lease_until)
VALUES
    (1, 1, 4711, 8, 'app-1', '1', '[]', now() - interval '5 hours', now() - interval '2 seconds', now() + interval '28 seconds'),
    (2, 2, 218, 2, 'app-2', '1', '["reports"]', now() - interval '5 hours', now() - interval '3 seconds', now() + interval '27 seconds');

INSERT INTO pgqueue_queues (name, paused_at, paused_by, pause_reason, resume_at, max_running)
VALUES
    ('default', NULL, '', '', NULL, NULL),
    ('emails', NULL, '', '', NULL, NULL),
    ('imports', now() - interval '26 minutes', 'ann', 'the provider is down', now() + interval '94 minutes', NULL),
    ('reports', NULL, '', '', NULL, 2);

-- What is ready: a backlog of imports, some mails, and a queue whose name was mistyped.
INSERT INTO pgqueue_jobs (queue, task, run_at, enqueued_at)
SELECT 'emails', 'shop.tasks.send_receipt', now() - make_interval(secs => number), now() - make_interval(secs => number)
FROM generate_series(1, 100) AS number;
INSERT INTO pgqueue_jobs (queue, task, run_at, enqueued_at, fair_key)
SELECT
    'imports', 'shop.tasks.import_row', now() - interval '1 day' + make_interval(secs => number / 1e6),
    now() - interval '20 minutes', 'tenant 7'
FROM generate_series(1, 12000) AS number;
INSERT INTO pgqueue_jobs (queue, task, run_at, enqueued_at)
VALUES ('emials', 'shop.tasks.send_receipt', now() - interval '3 hours', now() - interval '3 hours');

-- What runs: a report for 47 minutes, a mail, the holder of a key, and one whose worker is gone.
INSERT INTO pgqueue_jobs
    (id, queue, task, status, attempts, run_at, started_at, lease_token, lease_until, worker_id, timeout_seconds, progress, killed_by)
VALUES
    (81240001, 'reports', 'shop.tasks.build_report', 'running', 1, now() - interval '48 minutes', now() - interval '47 minutes',
        11, now() - interval '46 minutes', 2, 0, '{"done": 310, "total": 1200}', NULL),
    (81240002, 'reports', 'shop.tasks.build_report', 'running', 2, now() - interval '4 minutes', now() - interval '3 minutes',
        12, now() - interval '2 minutes', 2, 300, NULL, 'ben'),
    (81240003, 'emails', 'shop.tasks.send_receipt', 'running', 1, now() - interval '3 seconds', now() - interval '2 seconds',
        13, now() + interval '28 seconds', 1, 30, NULL, NULL),
    (81240004, 'emails', 'shop.tasks.send_receipt', 'running', 1, now() - interval '60 seconds', now() - interval '50 seconds',
        14, now() - interval '20 seconds', 9, 30, NULL, NULL);

-- Concurrency keys: one account is synced for 12 minutes, and six jobs wait; another backs off and keeps its place.
INSERT INTO pgqueue_jobs
    (id, queue, task, status, attempts, run_at, started_at, lease_token, lease_until, worker_id, concurrency_key,
    concurrency_limit, concurrency_slot, concurrency_strict)
VALUES
    (81240005, 'default', 'shop.tasks.sync_account', 'running', 1, now() - interval '13 minutes', now() - interval '12 minutes',
        15, now() - interval '11 minutes', 1, 'account_id=17', 1, 1, false),
    (81240006, 'default', 'shop.tasks.apply_event', 'scheduled', 3, now() + interval '8 minutes', now() - interval '1 minute',
        0, now(), 0, 'account_id=18', 1, 1, true);
INSERT INTO pgqueue_jobs (queue, task, status, run_at, concurrency_key, concurrency_limit)
SELECT 'default', 'shop.tasks.sync_account', 'limited', now() - make_interval(mins => number), 'account_id=17', 1
FROM generate_series(1, 6) AS number;
INSERT INTO pgqueue_jobs (queue, task, status, run_at, concurrency_key, concurrency_limit)
SELECT 'default', 'shop.tasks.apply_event', 'limited', now() - make_interval(secs => 10 * number), 'account_id=18', 1
FROM generate_series(1, 2) AS number;

-- What is due later.
INSERT INTO pgqueue_jobs (queue, task, status, attempts, run_at)
SELECT 'emails', 'shop.tasks.send_receipt', 'scheduled', 1, now() + make_interval(mins => number)
FROM generate_series(1, 5) AS number;

-- Counts of a day: mails fail now and did not before; reports fail as often as ever.
INSERT INTO pgqueue_stats (minute, queue, task, succeeded, failed, retried, died, wait_buckets)
SELECT
    date_trunc('minute', now()) - make_interval(mins => number), 'emails', 'shop.tasks.send_receipt',
    CASE WHEN number <= 12 THEN 4 ELSE 20 END, CASE WHEN number <= 12 THEN 16 WHEN number % 60 = 0 THEN 1 ELSE 0 END,
    CASE WHEN number <= 12 THEN 15 ELSE 0 END, CASE WHEN number <= 12 THEN 1 ELSE 0 END,
    '{0,0,3,12,4,0,0,0,0,0,0,0,1}'
FROM generate_series(1, 1400) AS number;
INSERT INTO pgqueue_stats (minute, queue, task, succeeded, failed, retried, wait_buckets)
SELECT date_trunc('minute', now()) - make_interval(mins => number), 'reports', 'shop.tasks.build_report', 1, 1, 1,
    '{0,0,0,0,0,0,0,0,0,0,0,0,0,1,1}'
FROM generate_series(1, 1400) AS number;

-- What is dead: twelve of one cause, three of another, and one of last week.
INSERT INTO pgqueue_dead_jobs (id, queue, task, reason, died_at, run_at, enqueued_at, attempts, errors)
SELECT
    81180000 + number, 'emails', 'shop.tasks.send_receipt', 'exhausted', now() - make_interval(mins => number), now(), now(), 10,
    jsonb_build_array(jsonb_build_object(
        'kind', 'failed', 'attempt', 10, 'error', 'SMTPServerDisconnected', 'message', format('Connection %s unexpectedly closed', 5000 + number)
    ))
FROM generate_series(1, 12) AS number;
INSERT INTO pgqueue_dead_jobs (id, queue, task, reason, died_at, run_at, enqueued_at, attempts, errors)
SELECT
    81190000 + number, 'reports', 'shop.tasks.build_report', 'lost', now() - make_interval(hours => 2 * number), now(), now(), 3,
    '[{"kind": "lost", "attempt": 3, "error": "worker lost"}]'
FROM generate_series(1, 3) AS number;
INSERT INTO pgqueue_dead_jobs (id, queue, task, reason, died_at, run_at, enqueued_at)
VALUES (81100000, 'emails', 'shop.tasks.send_receipt', 'killed', now() - interval '7 days', now(), now());

-- What is done: waits of 0.01 to 1 second, one of 40 seconds; and one of before the last hour, which waited a day.
INSERT INTO pgqueue_succeeded_jobs
    (id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, worker_id, run_seconds, priority, attempts, lost,
    queue, task, backend, args, kwargs, metadata, errors)
SELECT
    number, done.at, done.at - done.waited, done.at - done.waited, done.at, done.at, 1, 0.2, 0, 1, 0,
    'emails', 'shop.tasks.send_receipt', '', '[17]', '{}', '{}', '[]'
FROM generate_series(0, 100) AS number
CROSS JOIN LATERAL (
    SELECT
        CASE number WHEN 0 THEN now() - interval '2 hours' ELSE now() - make_interval(secs => number) END AS at,
        CASE number WHEN 0 THEN interval '1 day' WHEN 100 THEN interval '40 seconds'
            ELSE make_interval(secs => number / 100.0) END AS waited
) AS done;

INSERT INTO pgqueue_schedules (name, task, cron, every_seconds, next_at, is_enabled, last_error)
VALUES
    ('nightly report', 'shop.tasks.build_report', '0 3 * * *', NULL, now() - interval '3 hours', true, ''),
    ('sync stock', 'shop.tasks.sync_stock', '', 600, now() + interval '5 minutes', true, 'No worker knows the task ''shop.tasks.sync_stock''.'),
    ('digest', 'shop.tasks.send_digest', '', 3600, now() + interval '5 minutes', true, ''),
    ('newsletter', 'shop.tasks.send_newsletter', '0 9 * * *', NULL, now() - interval '3 days', false, '');
