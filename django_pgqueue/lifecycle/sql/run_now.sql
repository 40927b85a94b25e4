-- Make scheduled jobs due at once. Called by run_now.run_now() for staff. Locked rows are left out. Found by primary key.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM pgqueue_jobs AS job
    WHERE job.id = ANY (%(ids)s::bigint[])
      AND (job.status = 'scheduled' OR job.status = 'queued' AND job.run_at > statement_timestamp())
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_jobs AS job
SET status = 'queued',
    run_at = statement_timestamp()
FROM target
WHERE job.id = target.id
RETURNING job.id, job.queue;
