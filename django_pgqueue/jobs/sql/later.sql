-- Move jobs that hold unique keys to a later time: into the future they become scheduled, and those that were admitted
-- give their slot back. Called by unique._Insertion._settle() in the caller's transaction. Locks and finds like
-- replace.sql; one that has started meanwhile, or is due that late by now, is missing from the answer, and the caller
-- undoes the statement. Returns like replace.sql, with the concurrency key of which another job may be admitted.
WITH due AS MATERIALIZED (
    SELECT COALESCE(
        %(run_at)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay_seconds)s::double precision)
    ) AS run_at
)
UPDATE pgqueue_jobs AS job
SET run_at = due.run_at,
    status = CASE WHEN due.run_at > statement_timestamp() THEN 'scheduled' ELSE job.status END,
    concurrency_slot = CASE
        WHEN due.run_at > statement_timestamp() AND job.status <> 'scheduled' THEN NULL
        ELSE job.concurrency_slot
    END,
    expires_at = COALESCE(
        %(expires_at)s::timestamptz,
        GREATEST(due.run_at, statement_timestamp()) + make_interval(secs => %(expires_seconds)s::double precision),
        job.expires_at
    )
FROM due
WHERE job.id = ANY (ARRAY(
    SELECT conflict.id
    FROM unnest(%(unique_keys)s::text[]) AS call (unique_key)
    CROSS JOIN due
    CROSS JOIN LATERAL (
        SELECT one.id
        FROM pgqueue_jobs AS one
        WHERE one.unique_key = call.unique_key
          AND one.unique_until IN ('end', 'start')
          AND one.lease_token = 0
          AND one.status <> 'reserved'
          AND (one.expires_at > clock_timestamp()) IS NOT FALSE
          AND one.kill_requested_at IS NULL
          AND one.run_at < due.run_at
        LIMIT 1
        FOR NO KEY UPDATE
    ) AS conflict
))
RETURNING job.unique_key, job.id, job.queue, job.status = 'queued', job.concurrency_key;
