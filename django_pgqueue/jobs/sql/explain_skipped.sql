-- Say where jobs stand that an action has skipped. Called by actions.why_skipped(). Locks nothing; found by primary
-- key, and holders of a unique key by pgqueue_jobs_unique. Returns for each id the status if it is live, whether it is
-- dead, whether another job holds the unique key of a dead one, and whether retry_dead.sql leaves it for what its
-- columns hold.
SELECT
    asked.id,
    (SELECT job.status FROM pgqueue_jobs AS job WHERE job.id = asked.id),
    EXISTS (SELECT FROM pgqueue_dead_jobs AS dead WHERE dead.id = asked.id),
    EXISTS (
        SELECT
        FROM pgqueue_jobs AS holder
        WHERE holder.unique_key = (SELECT dead.unique_key FROM pgqueue_dead_jobs AS dead WHERE dead.id = asked.id)
          AND holder.unique_scope IN ('live', 'start')
    ),
    EXISTS (
        SELECT
        FROM pgqueue_dead_jobs AS dead
        WHERE dead.id = asked.id AND NOT (
            greatest(
                char_length(dead.queue) + 372, char_length(dead.task), char_length(dead.backend),
                char_length(dead.unique_key), char_length(dead.concurrency_key), char_length(dead.fair_key)
            ) <= 500
            AND dead.enqueued_at BETWEEN '1970-01-01Z' AND '9999-01-01Z'
            AND dead.first_started_at BETWEEN '1970-01-01Z' AND '9999-01-01Z'
        )
    )
FROM unnest(%(ids)s::bigint[]) AS asked (id);
