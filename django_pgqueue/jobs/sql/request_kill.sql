-- Ask running jobs to stop. Called by manage.kill() for staff, after dead_letter.sql. Not fenced: it asks whichever
-- run holds the job now. Locked rows are left out. Found by primary key. The worker reads the request with its next
-- heartbeat, or sooner by NOTIFY.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM pgqueue_jobs AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.lease_token <> 0
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_jobs AS job
SET kill_requested_at = COALESCE(job.kill_requested_at, statement_timestamp()),
    killed_by = COALESCE(job.killed_by, %(by)s::text)
FROM target
WHERE job.id = target.id
RETURNING job.id;
