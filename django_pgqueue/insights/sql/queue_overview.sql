-- How many jobs of each status some queues have, and how many dead ones. Called by insights.overview. No backlog makes
-- it take long: for each queue it reads pgqueue_jobs_claim and pgqueue_dead_jobs_queue up to the limit; statuses
-- without an index by queue are read up to ``most`` rows over all queues, scheduled ones in the order of their times.
-- Locks nothing. Returns the name; queued, scheduled, limited, running and dead; and whether of the scheduled, the
-- limited and the running ones there were more than were looked at, so that the number may be too low.
WITH seen AS MATERIALIZED (
    (
        SELECT job.queue, job.status
        FROM pgqueue_jobs AS job
        WHERE job.status IN ('scheduled', 'reserved')
        ORDER BY job.run_at
        LIMIT %(most)s::bigint
    )
    UNION ALL
    (
        SELECT job.queue, job.status
        FROM pgqueue_jobs AS job
        WHERE job.status = 'limited'
        ORDER BY job.concurrency_key
        LIMIT %(most)s::bigint
    )
    UNION ALL
    (
        SELECT job.queue, job.status
        FROM pgqueue_jobs AS job
        WHERE job.status = 'running'
        ORDER BY job.worker_id
        LIMIT %(most)s::bigint
    )
),
numbers AS MATERIALIZED (
    SELECT
        seen.queue,
        count(*) FILTER (WHERE seen.status = 'scheduled') AS scheduled,
        count(*) FILTER (WHERE seen.status = 'limited') AS limited,
        count(*) FILTER (WHERE seen.status = 'running') AS running
    FROM seen
    GROUP BY seen.queue
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
    COALESCE(numbers.scheduled, 0),
    COALESCE(numbers.limited, 0),
    COALESCE(numbers.running, 0),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pgqueue_dead_jobs AS job
            WHERE job.queue = chosen.name
            LIMIT %(limit)s::bigint
        ) AS dead
    ),
    (SELECT count(*) FROM seen WHERE seen.status IN ('scheduled', 'reserved')) = %(most)s::bigint,
    (SELECT count(*) FROM seen WHERE seen.status = 'limited') = %(most)s::bigint,
    (SELECT count(*) FROM seen WHERE seen.status = 'running') = %(most)s::bigint
FROM unnest(%(names)s::text[]) AS chosen (name)
LEFT JOIN numbers ON numbers.queue = chosen.name;
