-- Remove succeeded jobs for good. Called by manage.purge() for staff. Locked rows are left out. Found by the
-- primary keys of all partitions.
WITH target AS MATERIALIZED (
    SELECT succeeded.id
    FROM pgqueue_succeeded_jobs AS succeeded
    WHERE succeeded.id = ANY (%(ids)s::bigint[])
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_succeeded_jobs AS succeeded
WHERE succeeded.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING succeeded.id;
