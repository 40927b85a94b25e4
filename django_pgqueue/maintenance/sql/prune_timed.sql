-- Remove succeeded jobs with a keeping time of their own, which is over. Called by pruner.delete_slice().
-- Takes a bounded slice along pgqueue_succeeded_prune, which has no others, and steps over locked rows; then
-- finds them by the primary keys of the partitions of their days. As a condition, not as a join: that might read whole
-- partitions, and look for each of their rows in the slice. Returns their ids.
WITH due AS MATERIALIZED (
    SELECT succeeded.id, succeeded.succeeded_at
    FROM pgqueue_succeeded_jobs AS succeeded
    WHERE succeeded.prune_at <= statement_timestamp()
    ORDER BY succeeded.prune_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_succeeded_jobs AS succeeded
WHERE
    succeeded.id = ANY (ARRAY(SELECT due.id FROM due))
    AND succeeded.succeeded_at BETWEEN (SELECT min(due.succeeded_at) FROM due)
    AND (SELECT max(due.succeeded_at) FROM due)
RETURNING succeeded.id;
