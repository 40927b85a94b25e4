-- For how many seconds the job of each queue has waited that could have run for longest, and whether the queue holds
-- jobs back on purpose, paused or limited; no row for a queue where none waits. Called by
-- pending_work.oldest_runnable() for probes of a worker's health, and by insights.overview. Walks along
-- pgqueue_jobs_claim from one priority of a queue to the next, and reads the first entry of each. The run_at of a job
-- may be before it was enqueued: its turn, or a head start. Jobs that are due but still scheduled count for people, as they
-- are not promoted while no worker is there: the first ``most`` along pgqueue_jobs_due. Locks nothing.
WITH RECURSIVE heads (queue, rank, run_at, since) AS (
    (
        SELECT
            job.queue, -job.priority, job.run_at,
            GREATEST(job.run_at, job.enqueued_at)
        FROM pgqueue_jobs AS job
        WHERE job.status = 'queued'
        ORDER BY job.queue, (-job.priority), job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT next.queue, next.rank, next.run_at, next.since
    FROM heads
    CROSS JOIN LATERAL (
        SELECT
            job.queue, -job.priority AS rank, job.run_at,
            GREATEST(job.run_at, job.enqueued_at) AS since
        FROM pgqueue_jobs AS job
        WHERE job.status = 'queued' AND (job.queue, (-job.priority)) > (heads.queue, heads.rank)
        ORDER BY job.queue, (-job.priority), job.run_at, job.id
        LIMIT 1
    ) AS next
),
due AS MATERIALIZED (
    SELECT job.queue, job.run_at, job.status
    FROM pgqueue_jobs AS job
    WHERE job.status IN ('scheduled', 'reserved') AND job.run_at <= statement_timestamp()
    ORDER BY job.run_at
    LIMIT %(most)s::bigint
)
SELECT
    found.queue,
    extract(epoch FROM statement_timestamp() - min(found.since))::double precision,
    EXISTS (
        SELECT
        FROM pgqueue_queues AS limits
        WHERE limits.name = found.queue
          AND (
              limits.max_running IS NOT NULL
              OR limits.rate_limit IS NOT NULL
              OR limits.paused_at IS NOT NULL
                  AND (limits.resume_at IS NULL OR limits.resume_at > statement_timestamp())
          )
    )
FROM (
    SELECT heads.queue, heads.since FROM heads WHERE heads.run_at <= statement_timestamp()
    UNION ALL
    SELECT due.queue, due.run_at FROM due WHERE due.status = 'scheduled'
) AS found
GROUP BY found.queue;
