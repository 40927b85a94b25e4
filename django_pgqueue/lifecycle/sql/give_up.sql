-- Take their unique keys from jobs that are over and still there: tombstones whose time is over, and jobs that do not run
-- and will not, because they have expired or were killed. Those die as they would have. Called by unique.meet() in the
-- caller's transaction, before the insert is tried again. Locks the rows in order of the keys, and waits for others that
-- do the same; one that is claimed meanwhile is missing from the answer, and the caller undoes the statement. Found like
-- those of finish.sql, by pgqueue_jobs_unique. Returns like replace.sql.
UPDATE pgqueue_jobs AS job
SET unique_scope = CASE WHEN job.unique_scope = 'live' THEN 'given_up' ELSE 'started' END
WHERE job.id = ANY (ARRAY(
    SELECT twin.id
    FROM unnest(%(unique_keys)s::text[]) AS call (unique_key)
    CROSS JOIN LATERAL (
        SELECT one.id
        FROM pgqueue_jobs AS one
        WHERE one.unique_key = call.unique_key
          AND one.unique_scope IN ('live', 'start')
          AND one.lease_token = 0
          AND CASE
              WHEN one.status = 'held' THEN one.run_at <= statement_timestamp()
              ELSE one.expires_at <= statement_timestamp() OR one.cancel_requested_at IS NOT NULL
          END
        LIMIT 1
        FOR NO KEY UPDATE
    ) AS twin
))
RETURNING job.unique_key, job.id, job.queue, false, NULL::text;
