-- Remove finished jobs that were to be kept for a time of their own, which is over. Called by pruner.prune_timed().
-- Takes a bounded slice along pgqueue_finished_jobs_prune, in which no others stand, and steps over locked rows; then
-- finds each by the primary key of its partition. Returns their ids.
WITH due AS MATERIALIZED (
    SELECT finished.id, finished.finished_at
    FROM pgqueue_finished_jobs AS finished
    WHERE finished.prune_at <= statement_timestamp()
    ORDER BY finished.prune_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_finished_jobs AS finished
USING due
WHERE finished.id = due.id AND finished.finished_at = due.finished_at
RETURNING finished.id;
