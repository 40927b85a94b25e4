-- How many queued jobs of a queue come before a given one, counted up to a limit. Called by insights.position, for
-- people. Walks along pgqueue_jobs_claim from the head of the queue, no further than the limit; locks nothing.
SELECT count(*)
FROM (
    SELECT
    FROM pgqueue_jobs AS job
    WHERE job.queue = %(name)s::text
      AND job.status = 'queued'
      AND ((-job.priority), job.run_at, job.id) < (%(rank)s::smallint, %(run_at)s::timestamptz, %(id)s::bigint)
    ORDER BY (-job.priority), job.run_at, job.id
    LIMIT %(limit)s::bigint
) AS ahead;
