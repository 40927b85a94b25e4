-- Jobs of one worker process: put its id in place of the 2.
-- Index: pgqueue_jobs_running
SELECT
    job.id,
    job.queue,
    job.task,
    job.priority,
    job.attempts AS attempt,
    date_trunc('second', statement_timestamp() - job.started_at) AS claimed_for,
    job.progress ->> 'done' AS done,
    job.progress ->> 'total' AS of
FROM pgqueue_jobs AS job
WHERE job.worker_id = 2 AND job.status = 'running'
ORDER BY job.started_at, job.id;

--     id    |  queue  |          task           | priority | attempt | claimed_for | done |  of
-- ----------+---------+-------------------------+----------+---------+-------------+------+------
--  81240001 | reports | shop.tasks.build_report |        0 |       1 | 00:47:00    | 310  | 1200
--  81240002 | reports | shop.tasks.build_report |        0 |       2 | 00:03:00    |      |
