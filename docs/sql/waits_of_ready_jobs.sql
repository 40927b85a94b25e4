-- How long have the jobs waited that could run: median, 99th percentile and longest, of the next 10,000 in each queue.
-- Counted from run_at, when the job was due, not from enqueued_at.
-- Index: pgqueue_jobs_claim
SELECT
    queue.name AS queue,
    count(*) AS ready,
    date_trunc('second', percentile_cont(0.5) WITHIN GROUP (ORDER BY ready.waited)) AS median,
    date_trunc('second', percentile_cont(0.99) WITHIN GROUP (ORDER BY ready.waited)) AS p99,
    date_trunc('second', max(ready.waited)) AS longest
FROM pgqueue_queues AS queue
CROSS JOIN LATERAL (
    SELECT
        statement_timestamp()
        - CASE WHEN job.fair_key IS NULL THEN job.run_at ELSE GREATEST(job.run_at, job.enqueued_at) END AS waited
    FROM pgqueue_jobs AS job
    WHERE job.queue = queue.name AND job.status = 'queued' AND job.run_at <= statement_timestamp()
    ORDER BY (-job.priority), job.run_at, job.id
    LIMIT 10000
) AS ready
GROUP BY queue.name
ORDER BY p99 DESC;

--   queue  | ready |  median  |   p99    | longest
-- ---------+-------+----------+----------+----------
--  imports | 10000 | 00:20:00 | 00:20:00 | 00:20:00
--  emails  |   100 | 00:00:51 | 00:01:39 | 00:01:40
