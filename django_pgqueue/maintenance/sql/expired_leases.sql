-- Which running jobs of given processes have lost their worker: their lease has passed, and so has that of the process,
-- or it has no row. Called by maintenance.reaper for those that it has judged by expired_workers.sql. Leans on
-- pgqueue_jobs_running; locks nothing. Returns records.Lease, whose tokens fence what the reaper does next.
SELECT
    job.id, job.lease_token, job.worker_id, job.queue, job.attempts, job.max_attempts, job.lost,
    job.kill_requested_at IS NOT NULL, COALESCE(worker.host || ' pid ' || worker.pid, 'worker ' || job.worker_id),
    job.task, job.timeout_seconds
FROM pgqueue_jobs AS job
LEFT JOIN pgqueue_workers AS worker ON worker.id = job.worker_id
WHERE job.status = 'running'
  AND job.worker_id = ANY (%(worker_ids)s::bigint[])
  AND job.lease_until <= statement_timestamp()
  AND (worker.id IS NULL OR worker.lease_until <= statement_timestamp())
LIMIT 1000;
