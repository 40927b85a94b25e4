-- Ask commands to be quiet, or to go on, given any of their processes: all rows of the same command say so. Called by
-- leases.quiet() and leases.resume() for staff. Locked rows are left out: one of a command is enough. Reads the table
-- whole, which has a row for each worker process. Their heartbeats read the request. Returns the ids asked now.
WITH target AS MATERIALIZED (
    SELECT worker.id
    FROM pgqueue_workers AS worker
    WHERE worker.supervisor_id IN (
        SELECT chosen.supervisor_id FROM pgqueue_workers AS chosen WHERE chosen.id = ANY (%(worker_ids)s::bigint[])
    )
      AND (worker.quiet_since IS NOT NULL) <> %(is_quiet)s::boolean
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_workers AS worker
SET quiet_since = CASE WHEN %(is_quiet)s::boolean THEN statement_timestamp() END,
    quiet_by = CASE WHEN %(is_quiet)s::boolean THEN %(by)s::text ELSE '' END
FROM target
WHERE worker.id = target.id
RETURNING worker.id;
