-- Remove worker processes that have ended and whose jobs are settled. Called by heartbeat.deregister(). Never waits:
-- forget_workers.sql takes later what is locked now.
WITH ended AS MATERIALIZED (
    SELECT worker.id
    FROM pgqueue_workers AS worker
    WHERE worker.id = ANY (%(worker_ids)s::bigint[])
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_workers AS worker
USING ended
WHERE worker.id = ended.id
RETURNING worker.id;
