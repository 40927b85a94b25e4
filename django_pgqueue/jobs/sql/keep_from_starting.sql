-- Keep jobs of which unique_until is 'start' from starting before the caller's transaction ends, by FOR SHARE locks taken in
-- order of the keys. Called by unique._Insertion._settle(). Waits for sessions that change the rows. Leans on
-- pgqueue_jobs_unique. Returns like replace.sql; a job that has started or is over by then is missing, and the caller
-- undoes the statement.
SELECT
    conflict.unique_key, conflict.id, conflict.queue, conflict.status = 'queued',
    CASE WHEN conflict.status = 'limited' THEN conflict.concurrency_key END
FROM unnest(%(unique_keys)s::text[]) AS call (unique_key)
CROSS JOIN LATERAL (
    SELECT one.unique_key, one.id, one.queue, one.status, one.concurrency_key
    FROM pgqueue_jobs AS one
    WHERE one.unique_key = call.unique_key
      AND one.unique_until = 'start'
      AND one.lease_token = 0
      AND (one.expires_at > clock_timestamp()) IS NOT FALSE
      AND one.kill_requested_at IS NULL
    LIMIT 1
    FOR SHARE
) AS conflict;
