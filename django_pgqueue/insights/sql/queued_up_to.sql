-- How many jobs are queued in one queue, up to a limit. Called by insights.throughput. Reads pgqueue_jobs_claim up to
-- the limit; locks nothing.
SELECT count(*)
FROM (
    SELECT FROM pgqueue_jobs AS job WHERE job.queue = %(queue)s::text AND job.status = 'queued' LIMIT %(limit)s::bigint
) AS found;
