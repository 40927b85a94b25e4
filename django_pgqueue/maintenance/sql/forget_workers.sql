-- Remove processes that have been silent for an hour and run nothing. Called by reaper.forget_workers(). Takes a
-- bounded slice; never waits: locked rows are left for the next pass.
WITH silent AS MATERIALIZED (
    SELECT worker.id
    FROM pgqueue_workers AS worker
    WHERE worker.lease_until < statement_timestamp() - interval '1 hour'
      AND NOT EXISTS (
          SELECT FROM pgqueue_jobs AS job WHERE job.status = 'running' AND job.worker_id = worker.id
      )
    LIMIT 1000
    FOR UPDATE OF worker SKIP LOCKED
)
DELETE FROM pgqueue_workers AS worker
USING silent
WHERE worker.id = silent.id
RETURNING worker.id;
