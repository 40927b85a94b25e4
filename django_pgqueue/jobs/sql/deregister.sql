-- Remove worker processes that have ended and whose jobs are settled. Called by leases.deregister(). Never waits:
-- returns those that are still there, because a heartbeat that had begun before has them locked.
WITH ended AS MATERIALIZED (
    SELECT worker.id
    FROM pgqueue_workers AS worker
    WHERE worker.id = ANY (%(worker_ids)s::bigint[])
    FOR UPDATE SKIP LOCKED
),
removed AS (
    DELETE FROM pgqueue_workers AS worker
    USING ended
    WHERE worker.id = ended.id
    RETURNING worker.id
)
SELECT worker.id
FROM pgqueue_workers AS worker
WHERE worker.id = ANY (%(worker_ids)s::bigint[])
  AND worker.id NOT IN (SELECT removed.id FROM removed);
