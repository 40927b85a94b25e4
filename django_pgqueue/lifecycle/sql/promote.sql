-- Make due scheduled jobs claimable. Called by housekeeping.promote. Takes a bounded slice in order of run_at and steps
-- over locked rows, so any number of workers may try. The IN repeats the predicate of pgqueue_jobs_due, so that it can be
-- used; the = narrows it. Returns one row for each queue.
WITH due AS MATERIALIZED (
    SELECT job.ctid AS place
    FROM pgqueue_jobs AS job
    WHERE job.status IN ('scheduled', 'held')
      AND job.status = 'scheduled'
      AND job.run_at <= statement_timestamp()
    ORDER BY job.run_at
    LIMIT 1000
    FOR NO KEY UPDATE SKIP LOCKED
),
promoted AS (
    UPDATE pgqueue_jobs AS job
    SET status = 'queued'
    FROM due
    WHERE job.ctid = due.place
    RETURNING job.queue
)
SELECT promoted.queue, count(*)
FROM promoted
GROUP BY promoted.queue;
