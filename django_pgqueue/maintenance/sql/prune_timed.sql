-- Remove finished jobs that were to be kept for a time of their own, which is over. Called by pruner.delete_slice().
-- Takes a bounded slice along pgqueue_finished_jobs_prune, in which no others stand, and steps over locked rows; then
-- finds them by the primary keys of the partitions of their days. As a condition, not as a join: that might read whole
-- partitions, and look for each of their rows in the slice. Returns their ids.
WITH due AS MATERIALIZED (
    SELECT finished.id, finished.finished_at
    FROM pgqueue_finished_jobs AS finished
    WHERE finished.prune_at <= statement_timestamp()
    ORDER BY finished.prune_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_finished_jobs AS finished
WHERE
    finished.id = ANY (ARRAY(SELECT due.id FROM due))
    AND finished.finished_at BETWEEN (SELECT min(due.finished_at) FROM due) AND (SELECT max(due.finished_at) FROM due)
RETURNING finished.id;
