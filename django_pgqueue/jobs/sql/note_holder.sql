-- Write into the history of dead jobs that they were to be requeued, and which live job has their unique key.
-- Called by dead_letter.requeue() for those that requeue.sql has left out, in a statement of its own: the snapshot of
-- that one may be older than the holder. Locked rows are left out. Found by primary key, and by pgqueue_jobs_unique.
-- Returns the id of the job and that of the holder.
WITH refused AS MATERIALIZED (
    SELECT dead.id, holder.id AS holder_id
    FROM pgqueue_dead_jobs AS dead
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM pgqueue_jobs AS job
        WHERE job.unique_key = dead.unique_key AND job.unique_scope IN ('live', 'start')
        LIMIT 1
    ) AS holder
    WHERE dead.id = ANY (%(ids)s::bigint[])
    FOR NO KEY UPDATE OF dead SKIP LOCKED
)
UPDATE pgqueue_dead_jobs AS dead
SET errors = jsonb_insert(
    CASE WHEN jsonb_array_length(dead.errors) >= 20 THEN dead.errors - 10 ELSE dead.errors END,
    '{-1}',  -- what it died of stays the last entry, and its cause what it was
    jsonb_build_object(
        'attempt', dead.attempts, 'at', statement_timestamp(), 'by', %(by)s::text, 'holder', refused.holder_id,
        'error', 'not requeued by ' || %(by)s::text || ': job ' || refused.holder_id || ' has its unique key'
    )
)
FROM refused
WHERE dead.id = refused.id
RETURNING dead.id, refused.holder_id;
