-- Move jobs that hold unique keys to an earlier time: scheduled ones that are due then are queued, or wait to be
-- admitted; fair ones are promoted, which gives them their turn. Called by unique._Insertion._settle() in the caller's
-- transaction. Locks, finds and returns like replace.sql. One that has started meanwhile, or is due that early by now,
-- is missing from the answer, and the caller undoes the statement.
WITH due AS MATERIALIZED (
    SELECT COALESCE(
        %(run_at)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay_seconds)s::double precision)
    ) AS run_at
)
UPDATE pgqueue_jobs AS job
SET run_at = due.run_at,
    status = CASE
        WHEN job.status <> 'scheduled' OR due.run_at > statement_timestamp() OR job.fair_key IS NOT NULL THEN job.status
        WHEN job.concurrency_key IS NOT NULL AND job.concurrency_slot IS NULL THEN 'limited'
        ELSE 'queued'
    END
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
          AND one.run_at > due.run_at
        LIMIT 1
        FOR NO KEY UPDATE
    ) AS conflict
))
RETURNING
    job.unique_key, job.id, job.queue, job.status = 'queued',
    CASE WHEN job.status = 'limited' THEN job.concurrency_key END;
