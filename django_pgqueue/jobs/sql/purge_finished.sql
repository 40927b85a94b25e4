-- Remove finished jobs for good. Called by actions.purge() for staff. Locked rows are left out. Found by the
-- primary keys of all partitions.
WITH target AS MATERIALIZED (
    SELECT finished.id, finished.finished_at
    FROM pgqueue_finished_jobs AS finished
    WHERE finished.id = ANY (%(ids)s::bigint[])
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_finished_jobs AS finished
USING target
WHERE finished.id = target.id AND finished.finished_at = target.finished_at
RETURNING finished.id;
