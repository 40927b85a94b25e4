-- Which worker processes have running jobs and a lease that has passed, or no row at all; with how far apart their
-- heartbeats are, in seconds: a third of their lease, and no further than those of a command that has a session; NULL
-- without a row. Called by maintenance.reaper before expired_leases.sql. Looks at one entry of pgqueue_jobs_running for
-- each worker process; locks nothing.
WITH RECURSIVE runner (worker_id) AS (
    (SELECT job.worker_id FROM pgqueue_jobs AS job WHERE job.status = 'running' ORDER BY job.worker_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.worker_id
        FROM pgqueue_jobs AS job
        WHERE job.status = 'running' AND job.worker_id > runner.worker_id
        ORDER BY job.worker_id
        LIMIT 1
    )
    FROM runner
    WHERE runner.worker_id IS NOT NULL
)
SELECT
    runner.worker_id,
    LEAST(
        extract(epoch FROM worker.lease_until - worker.heartbeat_at)::double precision / 3,
        CASE WHEN worker.session_pid <> 0 THEN %(session_seconds)s::double precision END
    )
FROM runner
LEFT JOIN pgqueue_workers AS worker ON worker.id = runner.worker_id
WHERE runner.worker_id IS NOT NULL
  AND (worker.id IS NULL OR worker.lease_until <= statement_timestamp());
