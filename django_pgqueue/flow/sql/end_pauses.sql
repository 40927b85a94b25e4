-- Take down pauses whose time is over. Called by flow.queue_limits; claims have gone by the clock already, so
-- nothing depends on when this is done. Steps over rows that others are just changing. Returns the queues.
WITH over AS MATERIALIZED (
    SELECT one.ctid AS place
    FROM pgqueue_queues AS one
    WHERE one.paused_at IS NOT NULL AND one.resume_at <= statement_timestamp()
    LIMIT 1000
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_queues AS queue
SET paused_at = NULL,
    resume_at = NULL,
    paused_by = '',
    pause_reason = ''
FROM over
WHERE queue.ctid = over.place
RETURNING queue.name;
