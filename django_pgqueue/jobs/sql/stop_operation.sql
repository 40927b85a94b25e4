-- End operations that staff want to stop. Called by bulk_actions.stop(). Waits for the slice that is under way, if one
-- is: nothing is done for the operation after this has committed. Found by primary key. Returns the ids of those that
-- had not ended.
UPDATE pgqueue_operations AS operation
SET stopped_at = COALESCE(operation.stopped_at, statement_timestamp()),
    stopped_by = %(by)s::text,
    ended_at = GREATEST(statement_timestamp(), operation.started_at)
WHERE operation.id = ANY (%(ids)s::bigint[]) AND operation.ended_at IS NULL
RETURNING operation.id;
