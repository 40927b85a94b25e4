-- Find the live job that holds a unique key, a reserved row included. Called by lookup.find_holder(). Locks nothing; reads
-- one entry of pgqueue_jobs_unique. Returns the columns of lookup.KeyHolder; no row if the key is free.
SELECT job.id, job.task, job.queue
FROM pgqueue_jobs AS job
WHERE job.unique_key = %(unique_key)s::text AND job.unique_until IN ('end', 'start');
