-- Look which of some jobs live, and note at those that are wanted so that their ends are announced. Called by
-- waiter.look(), again and again while a caller waits. Never waits: locked rows are noted the next time, and those that
-- are noted are not written again. Found like those of finish.sql; a reserved row lives no more. Returns the ids of
-- live jobs, their status and queue, whether they are noted, and whether that was just done; one that is missing has
-- ended, or was never there.
WITH noted AS (
    UPDATE pgqueue_jobs
    SET has_waiters = true
    WHERE ctid = ANY (ARRAY(
        SELECT job.place
        FROM unnest(%(ids)s::bigint[], %(wanted)s::boolean[]) AS waiting (id, is_wanted)
        CROSS JOIN LATERAL (
            SELECT one.ctid AS place
            FROM pgqueue_jobs AS one
            WHERE one.id = waiting.id AND NOT one.has_waiters AND one.status <> 'reserved'
            LIMIT 1
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS job
        WHERE waiting.is_wanted
    ))
    RETURNING id
)
SELECT
    job.id, job.status, job.queue,
    job.has_waiters OR job.id IN (SELECT noted.id FROM noted),
    job.id IN (SELECT noted.id FROM noted)
FROM unnest(%(ids)s::bigint[]) AS waiting (id)
CROSS JOIN LATERAL (
    SELECT one.id, one.status, one.queue, one.has_waiters
    FROM pgqueue_jobs AS one
    WHERE one.id = waiting.id AND one.status <> 'reserved'
    LIMIT 1
) AS job;
