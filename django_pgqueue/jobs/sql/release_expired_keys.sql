-- Take the unique keys of jobs that are over: reserved rows past their time, and jobs that have expired or were killed
-- and do not run. Called by unique._Insertion._settle() before the insert is tried again. Locks the rows in order of
-- the keys and waits for them. Leans on pgqueue_jobs_unique. Returns like replace.sql; a job that is claimed meanwhile,
-- or is not over any more, is missing, and the caller undoes the statement.
UPDATE pgqueue_jobs AS job
SET unique_until = CASE WHEN job.unique_until = 'end' THEN 'given_up' ELSE 'started' END
WHERE job.id = ANY (ARRAY(
    SELECT conflict.id
    FROM unnest(%(unique_keys)s::text[]) AS call (unique_key)
    CROSS JOIN LATERAL (
        SELECT one.id
        FROM pgqueue_jobs AS one
        WHERE one.unique_key = call.unique_key
          AND one.unique_until IN ('end', 'start')
          AND one.lease_token = 0
          AND CASE
              WHEN one.status = 'reserved' THEN one.run_at <= clock_timestamp()
              ELSE one.expires_at <= clock_timestamp() OR one.kill_requested_at IS NOT NULL
          END
        LIMIT 1
        FOR NO KEY UPDATE
    ) AS conflict
))
RETURNING job.unique_key, job.id, job.queue, false, NULL::text;
