-- Which jobs were not started in time and do not run, those first that should have been first; with their concurrency
-- keys, queues and tasks. Called by maintenance.expirer, which moves them to dead_jobs. Locks nothing: dead_letter.sql
-- leaves those alone that have been claimed meanwhile. Reads pgqueue_jobs_expiry up to now, where those that started in
-- time stand too while they run; finished ones that hold their unique key are left alone.
SELECT job.id, job.concurrency_key, job.queue, job.task
FROM pgqueue_jobs AS job
WHERE job.expires_at <= statement_timestamp()
  AND job.status IN ('scheduled', 'queued', 'waiting')
ORDER BY job.expires_at
LIMIT 1000;
