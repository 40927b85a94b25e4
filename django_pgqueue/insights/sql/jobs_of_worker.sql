-- The jobs that a worker process holds, those first that were claimed first. Called by insights.worker_info. Reads
-- pgqueue_jobs_running for up to 5,000 of them, which is more than a process holds; locks nothing. Returns id, task,
-- queue, attempt and its bound, and the seconds since the claim.
SELECT held.id, held.task, held.queue, held.attempts, held.max_attempts,
    date_part('epoch', statement_timestamp() - held.started_at)
FROM (
    SELECT job.id, job.task, job.queue, job.attempts, job.max_attempts, job.started_at
    FROM pgqueue_jobs AS job
    WHERE job.worker_id = %(worker_id)s::bigint AND job.status = 'running'
    LIMIT 5000
) AS held
ORDER BY held.started_at, held.id
LIMIT %(limit)s::bigint;
