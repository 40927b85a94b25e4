-- For how many seconds 99 of 100 jobs that could run have waited at most, by queue. Called by insights.overview. Reads
-- of each queue the first ``most`` entries of pgqueue_jobs_claim, which are claimed next, and their rows: the run_at of
-- a job may be before it was enqueued, as its turn or by a head start. Locks nothing. Returns NULL where none waits.
SELECT chosen.name, ages.p99
FROM unnest(%(names)s::text[]) AS chosen (name)
CROSS JOIN LATERAL (
    SELECT percentile_disc(0.99) WITHIN GROUP (ORDER BY waiting.seconds) AS p99
    FROM (
        SELECT
            extract(
                epoch FROM statement_timestamp()
                    - GREATEST(job.run_at, job.enqueued_at)
            )::double precision AS seconds,
            job.run_at
        FROM pgqueue_jobs AS job
        WHERE job.queue = chosen.name AND job.status = 'queued'
        ORDER BY (-job.priority), job.run_at, job.id
        LIMIT %(most)s::bigint
    ) AS waiting
    WHERE waiting.run_at <= statement_timestamp()
) AS ages;
