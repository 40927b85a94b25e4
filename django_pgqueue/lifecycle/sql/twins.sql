-- Which live jobs hold these unique keys. Called by unique.meet() for jobs that met a twin, in a statement of its own:
-- the snapshot of the insert is older than the twin. Found like those of finish.sql, by pgqueue_jobs_unique; locks
-- nothing. Returns key and id; whether it is a tombstone whose time is over; and whether it stays as it is: it runs,
-- has finished, or there is nothing to change about it.
SELECT
    call.unique_key,
    job.id,
    job.status = 'held' AND job.run_at <= statement_timestamp(),
    CASE
        WHEN job.lease_token <> 0 OR job.status = 'held' THEN true
        WHEN %(on_conflict)s::text = 'replace' THEN job.task <> ALL (%(tasks)s::text[])
        WHEN %(on_conflict)s::text = 'later' THEN job.run_at >= due.run_at
        WHEN %(on_conflict)s::text = 'earlier' THEN job.run_at <= due.run_at
        ELSE true
    END
FROM unnest(%(unique_keys)s::text[]) AS call (unique_key)
CROSS JOIN (
    SELECT COALESCE(
        %(run_at)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay_seconds)s::double precision)
    )
) AS due (run_at)
CROSS JOIN LATERAL (
    SELECT one.id, one.status, one.run_at, one.lease_token, one.task
    FROM pgqueue_jobs AS one
    WHERE one.unique_key = call.unique_key AND one.unique_scope IN ('live', 'start')
    LIMIT 1
) AS job;
