-- How many jobs with the same fair key come before a given one in its queue, counted up to a limit. Called by
-- insights.position, for people. Walks along pgqueue_jobs_fair from the first of the key, no further than the limit;
-- locks nothing.
SELECT count(*)
FROM (
    SELECT
    FROM pgqueue_jobs AS job
    WHERE job.queue = %(queue)s::text
      AND job.fair_key = %(name)s::text
      AND job.status IN ('queued', 'limited')
      AND ((-job.priority), job.run_at) < (%(rank)s::smallint, %(run_at)s::timestamptz)
    ORDER BY job.queue, job.fair_key, (-job.priority), job.run_at
    LIMIT %(limit)s::bigint
) AS ahead;
