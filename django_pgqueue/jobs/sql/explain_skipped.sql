-- Return the state of jobs that an action has skipped. Called by actions.Action.why_skipped(). Locks nothing; found by
-- primary key, and holders of a unique key by pgqueue_jobs_unique. Returns for each id the status if it is live, and
-- why retry_dead.sql would leave it: the first reason there is, "gone" if it is not dead. Actions on dead jobs that
-- retry none of them need to know only whether it is gone.
SELECT
    asked.id,
    job.status,
    CASE
        WHEN dead.id IS NULL THEN 'gone'
        WHEN EXISTS (
            SELECT
            FROM pgqueue_jobs AS holder
            WHERE holder.unique_key = dead.unique_key AND holder.unique_until IN ('end', 'start')
        )
        THEN 'key_held'
        WHEN NOT (
            greatest(
                char_length(dead.queue) + 372, char_length(dead.task), char_length(dead.backend),
                char_length(dead.unique_key), char_length(dead.concurrency_key), char_length(dead.fair_key)
            ) <= 500
            AND dead.enqueued_at BETWEEN '1970-01-01Z' AND '9999-01-01Z'
        )
        THEN 'out_of_bounds'
        WHEN job.status IS NOT NULL THEN 'id_taken'
        ELSE 'changing'
    END
FROM unnest(%(ids)s::bigint[]) AS asked (id)
LEFT JOIN LATERAL (
    SELECT one.status FROM pgqueue_jobs AS one WHERE one.id = asked.id LIMIT 1
) AS job ON true
LEFT JOIN LATERAL (
    SELECT one.* FROM pgqueue_dead_jobs AS one WHERE one.id = asked.id LIMIT 1
) AS dead ON true;
