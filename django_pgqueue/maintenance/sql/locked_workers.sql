-- Which of these worker processes have a row that another transaction has locked, so that their heartbeats step over
-- it. Called by maintenance.reaper for those that it is about to judge. Never waits; its locks go with the statement.
WITH free AS MATERIALIZED (
    SELECT worker.id
    FROM pgqueue_workers AS worker
    WHERE worker.id = ANY (%(worker_ids)s::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT worker.id
FROM pgqueue_workers AS worker
WHERE worker.id = ANY (%(worker_ids)s::bigint[])
  AND worker.id NOT IN (SELECT free.id FROM free);
