-- What some worker processes are running, as the database has it. Called by leases.worker_leases(): it carries kill
-- requests, rows that the processes do not know, and what a dead child leaves. Leans on pgqueue_jobs_running; locks
-- nothing. Returns records.Lease.
SELECT
    job.id, job.lease_token, job.worker_id, job.queue, job.attempts, job.max_attempts, job.lost,
    job.kill_requested_at IS NOT NULL, COALESCE(worker.host || ' pid ' || worker.pid, 'worker ' || job.worker_id),
    job.task, job.timeout_seconds
FROM pgqueue_jobs AS job
LEFT JOIN pgqueue_workers AS worker ON worker.id = job.worker_id
WHERE job.status = 'running' AND job.worker_id = ANY (%(worker_ids)s::bigint[]);
