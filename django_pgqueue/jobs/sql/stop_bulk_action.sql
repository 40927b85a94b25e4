-- End bulk actions that staff want to stop. Called by bulk_actions.stop(). Waits for the slice that is under way, if
-- there is one: nothing is done for the bulk action after this has committed. Found by primary key. Returns the ids of
-- those that had not ended.
UPDATE pgqueue_bulk_actions AS bulk_action
SET stopped_at = COALESCE(bulk_action.stopped_at, statement_timestamp()),
    stopped_by = %(by)s::text,
    ended_at = GREATEST(statement_timestamp(), bulk_action.started_at)
WHERE bulk_action.id = ANY (%(ids)s::bigint[]) AND bulk_action.ended_at IS NULL
RETURNING bulk_action.id;
