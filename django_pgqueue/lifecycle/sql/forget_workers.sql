-- Remove processes that have been silent for an hour and run nothing. Called by housekeeping.reaper.
DELETE FROM pgqueue_workers AS worker
WHERE worker.lease_until < statement_timestamp() - interval '1 hour'
  AND NOT EXISTS (
      SELECT FROM pgqueue_jobs AS job WHERE job.status = 'running' AND job.worker_id = worker.id
  )
RETURNING worker.id;
