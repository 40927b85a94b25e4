-- Which jobs were not started in time and do not run, the earliest first; with concurrency keys, queues and tasks.
-- Called by maintenance.expirer, which moves them to dead_jobs; dead_letter.sql leaves those alone that have been
-- claimed meanwhile. Locks nothing; reads pgqueue_jobs_expiry up to now, which has jobs that run too.
SELECT job.id, job.concurrency_key, job.queue, job.task
FROM pgqueue_jobs AS job
WHERE job.expires_at <= statement_timestamp()
  AND job.status IN ('scheduled', 'queued', 'limited', 'blocked')
ORDER BY job.expires_at
LIMIT 1000;
