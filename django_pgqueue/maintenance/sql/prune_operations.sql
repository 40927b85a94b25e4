-- Remove operations that ended before the given days. Called by bulk_runner.prune_operations(). Locked rows are left
-- out. Reads the whole table along its primary key: it has as many rows as staff had reasons in a month.
WITH old AS MATERIALIZED (
    SELECT operation.id
    FROM pgqueue_operations AS operation
    WHERE operation.ended_at < statement_timestamp() - make_interval(days => %(days)s::integer)
    ORDER BY operation.id
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_operations AS operation
USING old
WHERE operation.id = old.id
RETURNING operation.id;
