-- Write into the history of dead jobs that a retry was asked for, and which live job has their unique key.
-- Called by dead_letter.retry() for those that retry_dead.sql has left out, in a statement of its own: the snapshot of
-- that one may be older than the holder. Locked rows are left out. Found by primary key, and by pgqueue_jobs_unique.
-- Returns the id of the job and that of the holder.
WITH refused AS MATERIALIZED (
    SELECT dead.id, holder.id AS holder_id
    FROM pgqueue_dead_jobs AS dead
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM pgqueue_jobs AS job
        WHERE job.unique_key = dead.unique_key AND job.unique_until IN ('end', 'start')
        LIMIT 1
    ) AS holder
    WHERE dead.id = ANY (%(ids)s::bigint[])
    FOR NO KEY UPDATE OF dead SKIP LOCKED
)
UPDATE pgqueue_dead_jobs AS dead
SET errors = jsonb_insert(
    CASE WHEN jsonb_array_length(dead.errors) >= 20 THEN dead.errors - 10 ELSE dead.errors END,
    '{-1}',  -- the death stays the last entry, and its cause the same
    jsonb_build_object(
        'kind', 'retry_refused', 'attempt', dead.attempts, 'at', statement_timestamp(), 'by', %(by)s::text,
        'holder', refused.holder_id
    )
)
FROM refused
WHERE dead.id = refused.id
RETURNING dead.id, refused.holder_id;
