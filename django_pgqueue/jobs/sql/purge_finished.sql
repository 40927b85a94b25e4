-- Remove finished jobs for good. Called by actions.purge() for staff. Locked rows are left out. Found by the
-- primary keys of all partitions.
WITH target AS MATERIALIZED (
    SELECT finished.id
    FROM pgqueue_finished_jobs AS finished
    WHERE finished.id = ANY (%(ids)s::bigint[])
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_finished_jobs AS finished
WHERE finished.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING finished.id;
