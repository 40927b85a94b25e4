-- Remove bulk actions that ended before the given days. Called by pruner.delete_slice(). Takes a bounded slice
-- and steps over locked rows. Reads the table along its primary key, up to all of it: it has as many rows as staff had
-- reasons in a month. Returns their ids.
WITH old AS MATERIALIZED (
    SELECT bulk_action.id
    FROM pgqueue_bulk_actions AS bulk_action
    WHERE bulk_action.ended_at < statement_timestamp() - make_interval(days => %(days)s::integer)
    ORDER BY bulk_action.id
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_bulk_actions AS bulk_action
USING old
WHERE bulk_action.id = old.id
RETURNING bulk_action.id;
