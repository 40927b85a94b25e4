-- Which running jobs have lost their worker: the lease has passed, and so has that of the process that runs them.
-- Called by maintenance.reaper, for given processes; NULL: any. Looks at one entry of pgqueue_jobs_running for each
-- worker process, and at the jobs of dead ones only; locks nothing. Returns records.Lease, whose tokens fence what the
-- reaper does next.
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
    job.id, job.lease_token, job.worker_id, job.queue, job.attempts, job.max_attempts, job.lost,
    job.cancel_requested_at IS NOT NULL, COALESCE(worker.host || ' pid ' || worker.pid, 'worker ' || job.worker_id),
    job.task, job.timeout_seconds
FROM runner
LEFT JOIN pgqueue_workers AS worker ON worker.id = runner.worker_id
CROSS JOIN LATERAL (
    SELECT held.*
    FROM pgqueue_jobs AS held
    WHERE held.status = 'running'
      AND held.worker_id = runner.worker_id
      AND held.lease_until <= statement_timestamp()
    LIMIT 1000
) AS job
WHERE (worker.id IS NULL OR worker.lease_until <= statement_timestamp())
  AND (%(worker_ids)s::bigint[] IS NULL OR runner.worker_id = ANY (%(worker_ids)s::bigint[]))
LIMIT 1000;
