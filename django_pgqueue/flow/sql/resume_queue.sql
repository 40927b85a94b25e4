-- Resume a queue. Called by queue_limits.resume() in the caller's transaction. Waits while another session
-- changes the queue's row. Returns a row where it was paused: whether it still was, or the time for that had passed.
WITH paused AS MATERIALIZED (
    SELECT one.name, one.resume_at IS NULL OR one.resume_at > statement_timestamp() AS was_paused
    FROM pgqueue_queues AS one
    WHERE one.name = %(name)s::text AND one.paused_at IS NOT NULL
    FOR NO KEY UPDATE
)
UPDATE pgqueue_queues AS queue
SET paused_at = NULL,
    resume_at = NULL,
    paused_by = '',
    pause_reason = ''
FROM paused
WHERE queue.name = paused.name
RETURNING paused.was_paused;
