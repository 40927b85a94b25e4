-- Give jobs that do not run another priority. Called by actions.set_priority() for staff. Locked rows are left out.
-- Found by primary key. Slots, fair keys and the note as in move_jobs.sql; keys take turns within a priority. Returns
-- the ids, their queues, and whether each may run now.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM pgqueue_jobs AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.lease_token = 0 AND job.status <> 'reserved'
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_jobs AS job
SET priority = %(priority)s::smallint,
    status = CASE
        WHEN job.fair_key IS NOT NULL AND job.concurrency_slot IS NULL THEN 'scheduled'
        ELSE job.status
    END,
    errors = jsonb_insert(
        CASE WHEN jsonb_array_length(job.errors) >= 20 THEN job.errors - 10 ELSE job.errors END,
        '{-1}',  -- the last error stays the last entry
        jsonb_build_object(
            'kind', 'prioritized', 'attempt', job.attempts, 'at', statement_timestamp(), 'by', %(by)s::text,
            'from', job.priority, 'to', %(priority)s::smallint
        )
    )
FROM target
WHERE job.id = target.id
RETURNING job.id, job.queue, job.status = 'queued';
