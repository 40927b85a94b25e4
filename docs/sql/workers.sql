-- Worker processes, and how many jobs each holds: more than its slots, as it prefetches some.
-- Index: pgqueue_jobs_running
SELECT
    worker.id,
    worker.host,
    worker.pid,
    CASE worker.queues WHEN '[]' THEN 'all' ELSE worker.queues::text END AS queues,
    worker.concurrency AS slots,
    held.jobs AS holds,
    date_trunc('second', statement_timestamp() - worker.heartbeat_at) AS last_heard,
    worker.lease_until > statement_timestamp() AS is_alive
FROM pgqueue_workers AS worker
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM pgqueue_jobs AS job
    WHERE job.worker_id = worker.id AND job.status = 'running'
) AS held
ORDER BY worker.host, worker.pid;

--  id | host  | pid  |   queues    | slots | holds | last_heard | is_alive
-- ----+-------+------+-------------+-------+-------+------------+----------
--   1 | app-1 | 4711 | all         |     8 |     2 | 00:00:02   | t
--   2 | app-2 |  218 | ["reports"] |     2 |     2 | 00:00:03   | t
