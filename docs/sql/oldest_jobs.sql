-- For each queue, how long the oldest job that could run has waited: as fast for ten million jobs as for ten.
-- The run_at of a job with a fair key is its place in the order and not a time, hence the CASE.
-- Index: pgqueue_jobs_claim
WITH RECURSIVE heads (queue, rank, run_at, since) AS (
    (
        SELECT
            job.queue, -job.priority, job.run_at,
            CASE WHEN job.fair_key IS NULL THEN job.run_at ELSE GREATEST(job.run_at, job.enqueued_at) END
        FROM pgqueue_jobs AS job
        WHERE job.status = 'queued'
        ORDER BY job.queue, (-job.priority), job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT next.queue, next.rank, next.run_at, next.since
    FROM heads
    CROSS JOIN LATERAL (
        SELECT
            job.queue, -job.priority AS rank, job.run_at,
            CASE WHEN job.fair_key IS NULL THEN job.run_at ELSE GREATEST(job.run_at, job.enqueued_at) END AS since
        FROM pgqueue_jobs AS job
        WHERE job.status = 'queued' AND (job.queue, (-job.priority)) > (heads.queue, heads.rank)
        ORDER BY job.queue, (-job.priority), job.run_at, job.id
        LIMIT 1
    ) AS next
)
SELECT
    heads.queue,
    date_trunc('second', statement_timestamp() - min(heads.since)) AS oldest,
    limits.paused_at IS NOT NULL AND COALESCE(limits.resume_at > statement_timestamp(), true) AS is_paused
FROM heads
LEFT JOIN pgqueue_queues AS limits ON limits.name = heads.queue
WHERE heads.run_at <= statement_timestamp()
GROUP BY heads.queue, limits.paused_at, limits.resume_at
ORDER BY oldest DESC;

--   queue  |  oldest  | is_paused
-- ---------+----------+-----------
--  emials  | 03:00:00 | f
--  imports | 00:20:00 | t
--  emails  | 00:01:40 | f
