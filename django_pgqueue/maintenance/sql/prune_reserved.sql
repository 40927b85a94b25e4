-- Remove reserved rows whose time is over. Called by maintenance.unique_keys. Takes a bounded slice in order of run_at
-- and steps over locked rows, so any number of workers may try. The IN repeats the predicate of pgqueue_jobs_due, so
-- that it can be used; the = narrows it. Returns the ids.
DELETE FROM pgqueue_jobs
WHERE ctid = ANY (ARRAY(
    SELECT job.ctid
    FROM pgqueue_jobs AS job
    WHERE job.status IN ('scheduled', 'reserved')
      AND job.status = 'reserved'
      AND job.run_at <= statement_timestamp()
    ORDER BY job.run_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
))
RETURNING id;
