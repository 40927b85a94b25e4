-- Which queues have dead jobs, in alphabetical order, up to a limit. Called by the admin for the choices of its
-- filters, by changelist.names(). Reads one entry of pgqueue_dead_jobs_queue for each name; locks nothing.
WITH RECURSIVE names (name) AS (
    (SELECT job.queue FROM pgqueue_dead_jobs AS job ORDER BY job.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.queue
        FROM pgqueue_dead_jobs AS job
        WHERE job.queue > names.name
        ORDER BY job.queue
        LIMIT 1
    )
    FROM names
    WHERE names.name IS NOT NULL
)
SELECT names.name
FROM names
WHERE names.name IS NOT NULL
LIMIT %(limit)s::bigint;
