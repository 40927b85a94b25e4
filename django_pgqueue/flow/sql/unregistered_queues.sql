-- Which queues have jobs, queued or running, and no row yet, up to a limit. Called by flow.queue_limits and by the
-- admin's list. Walks along pgqueue_jobs_claim from one queue to the next, and reads a bounded number of running jobs;
-- locks nothing.
WITH RECURSIVE names (name) AS (
    (SELECT job.queue FROM pgqueue_jobs AS job WHERE job.status = 'queued' ORDER BY job.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.queue
        FROM pgqueue_jobs AS job
        WHERE job.queue > names.name AND job.status = 'queued'
        ORDER BY job.queue
        LIMIT 1
    )
    FROM names
    WHERE names.name IS NOT NULL
),
running AS MATERIALIZED (
    SELECT job.queue FROM pgqueue_jobs AS job WHERE job.status = 'running' LIMIT 1000
),
used AS MATERIALIZED (
    SELECT names.name FROM names WHERE names.name IS NOT NULL
    UNION
    SELECT running.queue FROM running
)
SELECT used.name
FROM used
WHERE NOT EXISTS (SELECT FROM pgqueue_queues AS queue WHERE queue.name = used.name)
LIMIT %(limit)s::bigint;
