-- Ask commands to stop, given any of their processes: all rows of the same command say so. Called by
-- leases.stop() for staff. The first request stays. Locked rows are left out: one of a command is enough. Reads
-- the table whole, which has a row for each worker process. Their heartbeats read the request. Returns the ids asked
-- now.
WITH target AS MATERIALIZED (
    SELECT worker.id
    FROM pgqueue_workers AS worker
    WHERE worker.supervisor_id IN (
        SELECT chosen.supervisor_id FROM pgqueue_workers AS chosen WHERE chosen.id = ANY (%(worker_ids)s::bigint[])
    )
      AND worker.stop_requested_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_workers AS worker
SET stop_requested_at = statement_timestamp(),
    stop_requested_by = %(by)s::text
FROM target
WHERE worker.id = target.id
RETURNING worker.id;
