-- Keep jobs that give their unique keys up at their start from starting before the caller's transaction has ended: what
-- that has changed, their run would not see. Called by unique.meet() in the caller's transaction, for jobs that stay as
-- they are. Locks the rows in order of the keys, beside others that do the same, and waits for who changes them; claims
-- step over them. One that has started meanwhile, or is over, is missing from the answer, but may be locked all the
-- same: the caller undoes the statement. Found like those of finish.sql, by pgqueue_jobs_unique. Returns like replace.sql.
SELECT twin.unique_key, twin.id, twin.queue, false, NULL::text
FROM unnest(%(unique_keys)s::text[]) AS call (unique_key)
CROSS JOIN LATERAL (
    SELECT one.unique_key, one.id, one.queue
    FROM pgqueue_jobs AS one
    WHERE one.unique_key = call.unique_key
      AND one.unique_scope = 'start'
      AND one.lease_token = 0
      AND (one.expires_at > statement_timestamp()) IS NOT FALSE
      AND one.cancel_requested_at IS NULL
    LIMIT 1
    FOR SHARE
) AS twin;
