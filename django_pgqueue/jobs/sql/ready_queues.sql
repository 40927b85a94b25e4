-- Which queues have a job that may be claimed now, in no order. Called by claim.ready_queues() when a consumer
-- looks around whose queues are not all named. Reads one entry of pgqueue_jobs_claim for each queue; locks nothing.
WITH RECURSIVE backlog (queue) AS (
    (SELECT job.queue FROM pgqueue_jobs AS job WHERE job.status = 'queued' ORDER BY job.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.queue
        FROM pgqueue_jobs AS job
        WHERE job.status = 'queued' AND job.queue > backlog.queue
        ORDER BY job.queue
        LIMIT 1
    )
    FROM backlog
    WHERE backlog.queue IS NOT NULL
)
SELECT backlog.queue
FROM backlog
CROSS JOIN LATERAL (
    SELECT
    FROM pgqueue_jobs AS job
    WHERE job.queue = backlog.queue AND job.status = 'queued' AND job.run_at <= statement_timestamp()
    LIMIT 1
) AS first;
