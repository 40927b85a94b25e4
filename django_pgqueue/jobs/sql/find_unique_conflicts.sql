-- Find the jobs that hold unique keys, and what to do about each. Called by unique._Insertion.resolve_conflict() in a
-- statement of its own: the snapshot of the insert is older than the conflicting job. Locks nothing; leans on
-- pgqueue_jobs_unique. Returns key, id, and the name of the statement to run on the job: null if it runs, is a reserved
-- row, or needs no change.
SELECT
    call.unique_key,
    job.id,
    CASE
        WHEN job.status = 'reserved' AND job.run_at > statement_timestamp() OR job.lease_token <> 0 THEN NULL
        WHEN job.status = 'reserved' OR job.expires_at <= statement_timestamp() OR job.kill_requested_at IS NOT NULL
        THEN 'release_expired_keys'
        WHEN %(on_conflict)s::text = 'replace' AND job.task = ANY (%(tasks)s::text[]) THEN 'replace'
        WHEN %(on_conflict)s::text = 'later' AND job.run_at < due.run_at AND job.status <> 'blocked' THEN 'later'
        WHEN %(on_conflict)s::text = 'earlier' AND job.run_at > due.run_at THEN 'earlier'
        WHEN %(in_transaction)s::boolean AND job.unique_until = 'start' THEN 'keep_from_starting'
    END
FROM unnest(%(unique_keys)s::text[]) AS call (unique_key)
CROSS JOIN (
    SELECT COALESCE(
        %(run_at)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay_seconds)s::double precision)
    ) AS run_at
) AS due
CROSS JOIN LATERAL (
    SELECT one.id, one.status, one.run_at, one.lease_token, one.task, one.unique_until, one.expires_at, one.kill_requested_at
    FROM pgqueue_jobs AS one
    WHERE one.unique_key = call.unique_key AND one.unique_until IN ('end', 'start')
    LIMIT 1
) AS job;
