-- Running jobs, the longest first, with their process and the rest of its lease. Without host and pid, the process is
-- gone; with a negative lease_left, the job is about to be taken back. A time_limit of 0 is none.
-- Index: pgqueue_jobs_running
SELECT
    job.id,
    job.task,
    job.attempts AS attempt,
    date_trunc('second', statement_timestamp() - job.started_at) AS runs_for,
    job.timeout_seconds AS time_limit,
    worker.host,
    worker.pid,
    date_trunc('second', GREATEST(job.lease_until, worker.lease_until) - statement_timestamp()) AS lease_left,
    job.killed_by
FROM pgqueue_jobs AS job
LEFT JOIN pgqueue_workers AS worker ON worker.id = job.worker_id
WHERE job.status = 'running'
ORDER BY job.started_at
LIMIT 20;

--     id    |          task           | attempt | runs_for | time_limit | host  | pid  | lease_left | killed_by
-- ----------+-------------------------+---------+----------+------------+-------+------+------------+-----------
--  81240001 | shop.tasks.build_report |       1 | 00:47:00 |          0 | app-2 |  218 | 00:00:26   |
--  81240005 | shop.tasks.sync_account |       1 | 00:12:00 |          0 | app-1 | 4711 | 00:00:27   |
--  81240002 | shop.tasks.build_report |       2 | 00:03:00 |        300 | app-2 |  218 | 00:00:26   | ben
--  81240004 | shop.tasks.send_receipt |       1 | 00:00:50 |         30 |       |      | -00:00:20  |
--  81240003 | shop.tasks.send_receipt |       1 | 00:00:02 |         30 | app-1 | 4711 | 00:00:27   |
