-- How many jobs are queued, running and waiting in the given queues, up to a limit of each. Called by
-- pending_work.counts(), for staff. Reads pgqueue_jobs_claim up to the limit for each queue, and all running jobs and
-- waiting ones up to a hundred times the limit; locks nothing.
WITH running AS MATERIALIZED (
    SELECT found.queue, count(*) AS number
    FROM (
        SELECT job.queue FROM pgqueue_jobs AS job WHERE job.status = 'running' LIMIT 100 * %(limit)s::bigint
    ) AS found
    GROUP BY found.queue
),
waiting AS MATERIALIZED (
    SELECT found.queue, count(*) AS number
    FROM (
        SELECT job.queue FROM pgqueue_jobs AS job WHERE job.status = 'waiting' LIMIT 100 * %(limit)s::bigint
    ) AS found
    GROUP BY found.queue
)
SELECT
    chosen.name,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pgqueue_jobs AS job
            WHERE job.queue = chosen.name AND job.status = 'queued'
            LIMIT %(limit)s::bigint
        ) AS queued
    ),
    LEAST(COALESCE(running.number, 0), %(limit)s::bigint),
    LEAST(COALESCE(waiting.number, 0), %(limit)s::bigint)
FROM unnest(%(names)s::text[]) AS chosen (name)
LEFT JOIN running ON running.queue = chosen.name
LEFT JOIN waiting ON waiting.queue = chosen.name;
