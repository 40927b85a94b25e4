-- Say where jobs stand that a verb has left alone. Called by left.why_left(). Locks nothing; found by primary key, and
-- holders of a unique key by pgqueue_jobs_unique. Returns for each id the status if it is live, whether it is dead, and
-- whether another job holds the unique key of a dead one.
SELECT
    asked.id,
    (SELECT job.status FROM pgqueue_jobs AS job WHERE job.id = asked.id),
    EXISTS (SELECT FROM pgqueue_dead_jobs AS dead WHERE dead.id = asked.id),
    EXISTS (
        SELECT
        FROM pgqueue_jobs AS holder
        WHERE holder.unique_key = (SELECT dead.unique_key FROM pgqueue_dead_jobs AS dead WHERE dead.id = asked.id)
          AND holder.unique_scope IN ('live', 'start')
    )
FROM unnest(%(ids)s::bigint[]) AS asked (id);
