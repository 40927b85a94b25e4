-- Take their unique keys from tombstones whose time is over, where housekeeping has not come by yet. Called by
-- unique.meet() in the caller's transaction, before the insert is tried again. Locks the rows in order of the keys, and
-- waits for others that do the same. Found like those of finish.sql, by pgqueue_jobs_unique. Returns the keys.
UPDATE pgqueue_jobs AS job
SET unique_scope = 'started'
WHERE job.id = ANY (ARRAY(
    SELECT tombstone.id
    FROM unnest(%(unique_keys)s::text[]) AS call (unique_key)
    CROSS JOIN LATERAL (
        SELECT one.id
        FROM pgqueue_jobs AS one
        WHERE one.unique_key = call.unique_key
          AND one.unique_scope IN ('live', 'start')
          AND one.status = 'held'
          AND one.run_at <= statement_timestamp()
        LIMIT 1
        FOR NO KEY UPDATE
    ) AS tombstone
))
RETURNING job.unique_key;
