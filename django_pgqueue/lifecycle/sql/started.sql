-- Which jobs have given their unique key up at their start and are not running any more, from an id on. Called by
-- housekeeping.unique, to take the keys back. A bounded slice in order of id. Leans on pgqueue_jobs_started; locks
-- nothing.
SELECT job.id
FROM pgqueue_jobs AS job
WHERE job.unique_scope = 'started'
  AND job.id > %(after)s::bigint
  AND job.lease_token = 0
  AND job.status <> 'held'
ORDER BY job.id
LIMIT 1000;
