-- How many jobs of each status some queues have, and how many dead ones. Called by insights.overview. No backlog makes
-- it take long: for each queue it reads pgqueue_jobs_claim and pgqueue_dead_jobs_queue up to the limit; what has no
-- index by queue is read up to ``most`` rows over all queues, the scheduled ones in the order in which they are due.
-- Locks nothing. Returns the name; queued, scheduled, waiting, running and dead; and whether of the scheduled, the
-- waiting and the running ones there were more than were looked at, so that the number may be too low.
WITH scheduled AS MATERIALIZED (
    SELECT job.queue, job.status
    FROM pgqueue_jobs AS job
    WHERE job.status IN ('scheduled', 'reserved')
    ORDER BY job.run_at
    LIMIT %(most)s::bigint
),
waiting AS MATERIALIZED (
    SELECT job.queue
    FROM pgqueue_jobs AS job
    WHERE job.status = 'waiting'
    ORDER BY job.concurrency_key
    LIMIT %(most)s::bigint
),
running AS MATERIALIZED (
    SELECT job.queue
    FROM pgqueue_jobs AS job
    WHERE job.status = 'running'
    ORDER BY job.worker_id
    LIMIT %(most)s::bigint
),
numbers AS MATERIALIZED (
    SELECT
        found.queue,
        count(*) FILTER (WHERE found.status = 'scheduled') AS scheduled,
        count(*) FILTER (WHERE found.status = 'waiting') AS waiting,
        count(*) FILTER (WHERE found.status = 'running') AS running
    FROM (
        SELECT scheduled.queue, scheduled.status FROM scheduled
        UNION ALL
        SELECT waiting.queue, 'waiting' FROM waiting
        UNION ALL
        SELECT running.queue, 'running' FROM running
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
    COALESCE(numbers.scheduled, 0),
    COALESCE(numbers.waiting, 0),
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
    (SELECT count(*) FROM scheduled) = %(most)s::bigint,
    (SELECT count(*) FROM waiting) = %(most)s::bigint,
    (SELECT count(*) FROM running) = %(most)s::bigint
FROM unnest(%(names)s::text[]) AS chosen (name)
LEFT JOIN numbers ON numbers.queue = chosen.name;
