-- How many jobs that wait for a concurrency key come before a given one, counted up to a limit. Called by
-- insights.position, for people. Walks along pgqueue_jobs_limited from the first of the key, no further than the limit;
-- locks nothing.
SELECT count(*)
FROM (
    SELECT
    FROM pgqueue_jobs AS job
    WHERE job.concurrency_key = %(name)s::text
      AND job.status = 'limited'
      AND ((-job.priority), job.run_at, job.id) < (%(rank)s::smallint, %(run_at)s::timestamptz, %(id)s::bigint)
    ORDER BY job.concurrency_key, (-job.priority), job.run_at, job.id
    LIMIT %(limit)s::bigint
) AS ahead;
