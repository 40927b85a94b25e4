-- Number of jobs by queue and status. Counting stops at 10,000. Queues that no worker has served yet are missing.
-- Index: pgqueue_jobs_claim, pgqueue_jobs_running, pgqueue_jobs_due, pgqueue_jobs_limited
SELECT found.queue, found.status, count(*) AS jobs
FROM (
    SELECT queue.name AS queue, 'queued' AS status
    FROM pgqueue_queues AS queue
    CROSS JOIN LATERAL (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.queue = queue.name AND job.status = 'queued'
        ORDER BY (-job.priority), job.run_at, job.id
        LIMIT 10000
    ) AS queued
    UNION ALL
    (SELECT queue, status FROM pgqueue_jobs WHERE status = 'running' ORDER BY worker_id LIMIT 10000)
    UNION ALL
    (SELECT queue, status FROM pgqueue_jobs WHERE status IN ('scheduled', 'reserved') ORDER BY run_at LIMIT 10000)
    UNION ALL
    (SELECT queue, status FROM pgqueue_jobs WHERE status = 'limited' ORDER BY concurrency_key LIMIT 10000)
) AS found
GROUP BY found.queue, found.status
ORDER BY found.queue, found.status;

--   queue  |  status   | jobs
-- ---------+-----------+-------
--  default | limited   |     8
--  default | running   |     1
--  default | scheduled |     1
--  emails  | queued    |   100
--  emails  | running   |     2
--  emails  | scheduled |     5
--  imports | queued    | 10000
--  reports | running   |     2
