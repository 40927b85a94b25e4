-- Make scheduled jobs due at once; one with a concurrency key and no slot has to wait. Called by manage.run_now() for
-- staff. Locked rows are left out. Found by primary key. The history gets a note. Returns the concurrency key of those
-- that wait.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM pgqueue_jobs AS job
    WHERE job.id = ANY (%(ids)s::bigint[])
      AND (job.status = 'scheduled' OR job.status = 'queued' AND job.run_at > statement_timestamp())
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_jobs AS job
SET status = CASE
        WHEN job.concurrency_key IS NOT NULL AND job.concurrency_slot IS NULL THEN 'limited'
        ELSE 'queued'
    END,
    run_at = statement_timestamp(),
    errors = jsonb_insert(
        CASE WHEN jsonb_array_length(job.errors) >= 20 THEN job.errors - 10 ELSE job.errors END,
        '{-1}',  -- the last error stays the last entry
        jsonb_build_object(
            'kind', 'made_due', 'attempt', job.attempts, 'at', statement_timestamp(), 'by', %(by)s::text
        )
    )
FROM target
WHERE job.id = target.id
RETURNING job.id, job.queue, CASE WHEN job.status = 'limited' THEN job.concurrency_key END;
