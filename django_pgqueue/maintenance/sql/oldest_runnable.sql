-- For how many seconds the job has waited that could have run for longest, in the served queues (patterns of LIKE;
-- wanted NULL means all) that are not paused; NULL where none waits. Called by pending_work.oldest_runnable() for
-- probes of a worker's health. Walks along pgqueue_jobs_claim from one priority of a queue to the next, and reads the
-- first entry of each; locks nothing. The run_at of a fair job is its turn, which may be before it was enqueued.
WITH RECURSIVE heads (queue, rank, run_at, since) AS (
    (
        SELECT
            job.queue, -job.priority, job.run_at,
            CASE WHEN job.fair_key IS NULL THEN job.run_at ELSE GREATEST(job.run_at, job.enqueued_at) END
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
            CASE WHEN job.fair_key IS NULL THEN job.run_at ELSE GREATEST(job.run_at, job.enqueued_at) END AS since
        FROM pgqueue_jobs AS job
        WHERE job.status = 'queued' AND (job.queue, (-job.priority)) > (heads.queue, heads.rank)
        ORDER BY job.queue, (-job.priority), job.run_at, job.id
        LIMIT 1
    ) AS next
)
SELECT extract(epoch FROM statement_timestamp() - min(heads.since))::double precision
FROM heads
WHERE heads.run_at <= statement_timestamp()
  AND (%(wanted)s::text[] IS NULL OR heads.queue LIKE ANY (%(wanted)s::text[]))
  AND NOT heads.queue LIKE ANY (%(unwanted)s::text[])
  AND NOT EXISTS (
      SELECT
      FROM pgqueue_queues AS limits
      WHERE limits.name = heads.queue
        AND limits.paused_at IS NOT NULL
        AND (limits.resume_at IS NULL OR limits.resume_at > statement_timestamp())
  );
