-- Move jobs that do not run to another queue, or give them another priority; the other of the two is NULL, and stays.
-- Called by manage.move() and manage.set_priority() for staff. Locked rows are left out. Found by primary key.
-- What holds a slot of its concurrency key keeps it, and its place. Any other job with a fair key is scheduled, so that
-- promote.sql gives it a turn in its new queue or at its new priority. The history gets a note. Returns the ids, their
-- queues, and whether each may run now.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM pgqueue_jobs AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.lease_token = 0 AND job.status <> 'reserved'
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_jobs AS job
SET queue = COALESCE(%(queue)s::text, job.queue),
    priority = COALESCE(%(priority)s::smallint, job.priority),
    status = CASE
        WHEN job.fair_key IS NOT NULL AND job.concurrency_slot IS NULL AND job.status <> 'blocked' THEN 'scheduled'
        ELSE job.status
    END,
    errors = jsonb_insert(
        CASE WHEN jsonb_array_length(job.errors) >= 20 THEN job.errors - 10 ELSE job.errors END,
        '{-1}',  -- the last error stays the last entry
        jsonb_build_object('attempt', job.attempts, 'at', statement_timestamp(), 'by', %(by)s::text)
            || CASE
                WHEN %(queue)s::text IS NOT NULL
                THEN jsonb_build_object('kind', 'moved', 'from', job.queue, 'to', %(queue)s::text)
                ELSE jsonb_build_object('kind', 'prioritized', 'from', job.priority, 'to', %(priority)s::smallint)
            END
    )
FROM target
WHERE job.id = target.id
RETURNING job.id, job.queue, job.status = 'queued';
