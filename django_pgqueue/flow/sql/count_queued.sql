-- Count the queued jobs of a queue, up to a limit. Called by flow.backlog in the caller's transaction. Reads
-- pgqueue_jobs_claim; locks nothing. The planner settings are the caller's, with which the table might be read from its
-- beginning: so the name is a range, which leaves an order to ask for that only this index has.
SELECT count(*)
FROM (
    SELECT
    FROM pgqueue_jobs AS job
    WHERE job.queue BETWEEN %(queue)s::text AND %(queue)s::text AND job.status = 'queued'
    ORDER BY job.queue
    LIMIT %(limit)s::bigint
) AS queued;
