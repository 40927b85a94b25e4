-- Remove dead jobs for good. Called by manage.purge() for staff. Locked rows are left out. Found by primary key.
-- Returns the ids removed.
WITH target AS MATERIALIZED (
    SELECT dead.id
    FROM pgqueue_dead_jobs AS dead
    WHERE dead.id = ANY (%(ids)s::bigint[])
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_dead_jobs AS dead
WHERE dead.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING dead.id;
