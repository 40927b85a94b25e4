-- Take one bulk action whose next slice is due, those first that have waited longest; or a certain one. Called by
-- bulk_runner.carry_on(), in the transaction that does the slice. Locks the row; those that others hold are left out.
-- Read along pgqueue_bulk_actions_open.
SELECT
    bulk_action.id, bulk_action.created_at, bulk_action.after_id, bulk_action.until_id, bulk_action.rate,
    bulk_action.action, bulk_action.source, bulk_action.by, bulk_action.filter::text, bulk_action.params::text,
    bulk_action.outcome::text, bulk_action.skipped::text, bulk_action.stopped_at IS NOT NULL
FROM pgqueue_bulk_actions AS bulk_action
WHERE bulk_action.ended_at IS NULL
  AND bulk_action.next_at <= statement_timestamp()
  AND (%(id)s::bigint IS NULL OR bulk_action.id = %(id)s::bigint)
ORDER BY bulk_action.next_at
LIMIT 1
FOR UPDATE SKIP LOCKED;
