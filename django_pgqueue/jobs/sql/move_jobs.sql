-- Move jobs that do not run to another queue. Called by actions.move_jobs() for staff. Locked rows are left out. Found
-- by primary key. What holds a slot of its concurrency key keeps it, and its place. Any other job with a fair key is
-- scheduled, so that promote.sql gives it a turn in its new queue. The history gets a note. Returns the ids, and
-- whether each may run now.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM pgqueue_jobs AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.lease_token = 0 AND job.status <> 'reserved'
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_jobs AS job
SET queue = %(queue)s::text,
    status = CASE
        WHEN job.fair_key IS NOT NULL AND job.concurrency_slot IS NULL THEN 'scheduled'
        ELSE job.status
    END,
    errors = jsonb_insert(
        CASE WHEN jsonb_array_length(job.errors) >= 20 THEN job.errors - 10 ELSE job.errors END,
        '{-1}',  -- the last error stays the last entry
        jsonb_build_object(
            'kind', 'moved', 'attempt', job.attempts, 'at', statement_timestamp(), 'by', %(by)s::text,
            'from', job.queue, 'to', %(queue)s::text
        )
    )
FROM target
WHERE job.id = target.id
RETURNING job.id, job.status = 'queued';
