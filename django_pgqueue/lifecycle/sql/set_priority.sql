-- Give jobs that do not run another priority. Called by bulk.set_priority() for staff. Locked rows are left out. Found by
-- primary key. Slots and fair keys as in move.sql, for keys take turns within a priority. Returns the ids, their queues,
-- and whether each may run now.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM pgqueue_jobs AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.lease_token = 0 AND job.status <> 'held'
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_jobs AS job
SET priority = %(priority)s::smallint,
    status = CASE
        WHEN job.fair_key IS NOT NULL AND job.concurrency_slot IS NULL THEN 'scheduled'
        ELSE job.status
    END
FROM target
WHERE job.id = target.id
RETURNING job.id, job.queue, job.status = 'queued';
