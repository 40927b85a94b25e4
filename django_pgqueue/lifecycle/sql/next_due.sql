-- Seconds until the next scheduled job is due, NULL where none waits. Called by housekeeping.promote to know how long to
-- sleep. Reads pgqueue_jobs_due, whose predicate the IN repeats, up to the first scheduled one.
SELECT (
    SELECT extract(epoch FROM job.run_at - statement_timestamp())::double precision
    FROM pgqueue_jobs AS job
    WHERE job.status IN ('scheduled', 'held')
      AND job.status = 'scheduled'
    ORDER BY job.run_at
    LIMIT 1
);
