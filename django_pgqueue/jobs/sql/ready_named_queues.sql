-- Which of the given queues have a job that may be claimed now, in the given order. Called by claim.ready_queues()
-- where a consumer serves queues by name.
-- Reads one entry of pgqueue_jobs_claim for each queue; locks nothing.
SELECT served.queue
FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS served (queue, position)
CROSS JOIN LATERAL (
    SELECT
    FROM pgqueue_jobs AS job
    WHERE job.queue = served.queue AND job.status = 'queued' AND job.run_at <= statement_timestamp()
    LIMIT 1
) AS first
ORDER BY served.position;
