-- Which jobs have given their unique key up at their start and are not running any more, from an id on; without those
-- that have expired or were killed. Called by maintenance.unique_keys, to take the keys back. A bounded slice in order
-- of id. Leans on pgqueue_jobs_started; locks nothing.
SELECT job.id
FROM pgqueue_jobs AS job
WHERE job.unique_until = 'started'
  AND job.id > %(after)s::bigint
  AND job.lease_token = 0
  AND job.status <> 'reserved'
  AND (job.expires_at > statement_timestamp()) IS NOT FALSE
  AND job.kill_requested_at IS NULL
ORDER BY job.id
LIMIT 1000;
