-- Remove worker processes that have ended and whose jobs are settled. Called by heartbeat.deregister().
DELETE FROM pgqueue_workers
WHERE id = ANY (%(worker_ids)s::bigint[])
RETURNING id;
