-- The limits of queues: which are paused, for how many seconds at most, and how others are limited. Called by
-- queue_limits.send_limits(), from each consumer about once a second. Reads pgqueue_queues_limited, which has an entry
-- for each queue that has a limit; locks nothing.
SELECT
    limits.name,
    limits.paused_at IS NOT NULL AND (limits.resume_at IS NULL OR limits.resume_at > statement_timestamp()),
    limits.max_running,
    limits.rate_limit,
    limits.rate_period_seconds,
    limits.rate_burst,
    extract(epoch FROM limits.resume_at - statement_timestamp())::double precision
FROM pgqueue_queues AS limits
WHERE limits.paused_at IS NOT NULL OR limits.max_running IS NOT NULL OR limits.rate_limit IS NOT NULL;
