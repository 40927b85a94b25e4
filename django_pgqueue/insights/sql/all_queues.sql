-- Which queues there are, in alphabetical order, up to a limit: those that are noted, and those of queued and of dead
-- jobs. Called by insights.overview. Walks along pgqueue_jobs_claim and pgqueue_dead_jobs_queue from one name to the
-- next; locks nothing.
WITH RECURSIVE queued (name) AS (
    (SELECT job.queue FROM pgqueue_jobs AS job WHERE job.status = 'queued' ORDER BY job.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.queue
        FROM pgqueue_jobs AS job
        WHERE job.queue > queued.name AND job.status = 'queued'
        ORDER BY job.queue
        LIMIT 1
    )
    FROM queued
    WHERE queued.name IS NOT NULL
),
dead (name) AS (
    (SELECT job.queue FROM pgqueue_dead_jobs AS job ORDER BY job.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT job.queue FROM pgqueue_dead_jobs AS job WHERE job.queue > dead.name ORDER BY job.queue LIMIT 1)
    FROM dead
    WHERE dead.name IS NOT NULL
)
SELECT found.name
FROM (
    (SELECT queue.name FROM pgqueue_queues AS queue ORDER BY queue.name LIMIT %(limit)s::bigint)
    UNION
    (SELECT queued.name FROM queued LIMIT %(limit)s::bigint)
    UNION
    (SELECT dead.name FROM dead LIMIT %(limit)s::bigint)
) AS found
WHERE found.name IS NOT NULL
ORDER BY found.name
LIMIT %(limit)s::bigint;
