-- What is said of queues: which are paused, for how many seconds at most, and how others are limited. Called by
-- queue_limits.send_gates(), from each pump about once a second. Reads pgqueue_queues_gated, which has an entry for
-- each queue that has a gate; locks nothing.
SELECT
    gate.name,
    gate.paused_at IS NOT NULL AND (gate.resume_at IS NULL OR gate.resume_at > statement_timestamp()),
    gate.max_running,
    gate.rate_limit,
    gate.rate_period_seconds,
    gate.rate_burst,
    extract(epoch FROM gate.resume_at - statement_timestamp())::double precision
FROM pgqueue_queues AS gate
WHERE gate.paused_at IS NOT NULL OR gate.max_running IS NOT NULL OR gate.rate_limit IS NOT NULL;
