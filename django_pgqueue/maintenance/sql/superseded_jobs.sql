-- Find jobs that gave their unique key up at their start, do not run, and whose key another job has that will do its
-- work. Called by maintenance.unique_keys, which moves them to dead_jobs in the same transaction. Locks a bounded slice
-- of them and skips locked rows. Leans on pgqueue_jobs_started and _unique. Returns both ids, and the job's queue and
-- task.
SELECT job.id, conflict.id, job.queue, job.task
FROM pgqueue_jobs AS job
CROSS JOIN LATERAL (
    SELECT other.id
    FROM pgqueue_jobs AS other
    WHERE other.unique_key = job.unique_key
      AND other.unique_until IN ('end', 'start')
      AND CASE
          WHEN other.status = 'reserved' THEN other.run_at > statement_timestamp()
          ELSE other.lease_token <> 0
              OR (other.expires_at > statement_timestamp()) IS NOT FALSE AND other.kill_requested_at IS NULL
      END
    LIMIT 1
) AS conflict
WHERE job.unique_until = 'started'
  AND job.lease_token = 0
  AND job.status <> 'reserved'
  AND (job.expires_at > statement_timestamp()) IS NOT FALSE
  AND job.kill_requested_at IS NULL
ORDER BY job.id
LIMIT 1000
FOR UPDATE OF job SKIP LOCKED;
