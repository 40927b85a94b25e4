-- Take one operation whose next slice is due, those first that have waited longest; or a certain one. Called by
-- bulk_runner.carry_on(), in the transaction that does the slice. Locks the row; those that others hold are left out.
-- Read along pgqueue_operations_open.
SELECT
    operation.id, operation.created_at, operation.after_id, operation.until_id, operation.rate, operation.verb,
    operation.source, operation.by, operation.filter::text, operation.said::text, operation.outcome::text,
    operation."left"::text, operation.stopped_at IS NOT NULL
FROM pgqueue_operations AS operation
WHERE operation.ended_at IS NULL
  AND operation.next_at <= statement_timestamp()
  AND (%(id)s::bigint IS NULL OR operation.id = %(id)s::bigint)
ORDER BY operation.next_at
LIMIT 1
FOR UPDATE SKIP LOCKED;
