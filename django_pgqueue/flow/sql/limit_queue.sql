-- Set, change or remove the limits of a queue. Called by queue_limits.write_limits(). Makes the queue's row if there is
-- none; waits while another session changes it. Limits that are not set stay. A new rate begins with a full bucket;
-- where there was one, the tokens that have come together by then stay, as many as fit. Limits of the code, which have
-- no "by", do not take the place of those set by staff, unless they are to. Returns whether staff had set any before.
WITH before AS MATERIALIZED (
    SELECT one.limited_at
    FROM pgqueue_queues AS one
    WHERE one.name = %(name)s::text
)
INSERT INTO pgqueue_queues AS queue (
    name, limited_at, max_running, rate_limit, rate_period_seconds, rate_burst, tokens, tokens_at, limited_by
)
VALUES (
    %(name)s::text,
    CASE WHEN %(by)s::text IS NOT NULL THEN statement_timestamp() END,
    %(max_running)s::integer,
    %(rate)s::integer,
    %(period_seconds)s::double precision,
    %(burst)s::integer,
    COALESCE(%(burst)s::integer, 0),
    statement_timestamp(),
    COALESCE(%(by)s::text, '')
)
ON CONFLICT (name) DO UPDATE
SET limited_at = EXCLUDED.limited_at,
    limited_by = EXCLUDED.limited_by,
    max_running = CASE WHEN %(sets_max_running)s::boolean THEN EXCLUDED.max_running ELSE queue.max_running END,
    rate_limit = CASE WHEN %(sets_rate)s::boolean THEN EXCLUDED.rate_limit ELSE queue.rate_limit END,
    rate_period_seconds = CASE
        WHEN %(sets_rate)s::boolean THEN EXCLUDED.rate_period_seconds ELSE queue.rate_period_seconds
    END,
    rate_burst = CASE WHEN %(sets_rate)s::boolean THEN EXCLUDED.rate_burst ELSE queue.rate_burst END,
    tokens = CASE
        WHEN NOT %(sets_rate)s::boolean THEN queue.tokens
        WHEN EXCLUDED.rate_limit IS NULL OR queue.rate_limit IS NULL THEN EXCLUDED.tokens
        ELSE LEAST(
            EXCLUDED.tokens,
            queue.rate_burst,
            queue.tokens + abs(extract(epoch FROM statement_timestamp() - queue.tokens_at))::double precision
                * queue.rate_limit / queue.rate_period_seconds
        )
    END,
    tokens_at = CASE WHEN %(sets_rate)s::boolean THEN EXCLUDED.tokens_at ELSE queue.tokens_at END
WHERE queue.limited_at IS NULL OR NOT %(spares_edited)s::boolean
RETURNING EXISTS (SELECT FROM before WHERE before.limited_at IS NOT NULL);
