-- The limits of queues that the code declares, and of others that it may have declared before, as staff have not set
-- them. Called by DeclaredLimits.apply() when a worker starts, where any is declared. Locks nothing. Reads the
-- table, which has a row for each queue.
SELECT
    queue.name,
    queue.limited_at IS NOT NULL,
    queue.max_running,
    queue.rate_limit,
    queue.rate_period_seconds,
    queue.rate_burst
FROM pgqueue_queues AS queue
WHERE queue.name = ANY(%(names)s::text[])
    OR (queue.limited_at IS NULL AND (queue.max_running IS NOT NULL OR queue.rate_limit IS NOT NULL));
