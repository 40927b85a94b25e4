-- Pause a queue, or change why, by whom and until when it is. Called by queue_limits.pause() in the caller's
-- transaction. Makes the queue's row if there is none; waits while another session changes it. Returns whether it had
-- not been paused; nothing, and changes nothing, where the time to resume is over.
WITH before AS MATERIALIZED (
    SELECT one.paused_at
    FROM pgqueue_queues AS one
    WHERE one.name = %(name)s::text AND (one.resume_at IS NULL OR one.resume_at > statement_timestamp())
)
INSERT INTO pgqueue_queues AS queue (name, paused_at, resume_at, paused_by, pause_reason)
SELECT
    %(name)s::text,
    COALESCE((SELECT before.paused_at FROM before), statement_timestamp()),
    COALESCE(
        %(resume_at)s::timestamptz, statement_timestamp() + make_interval(secs => %(seconds)s::double precision)
    ),
    %(by)s::text,
    %(reason)s::text
WHERE %(resume_at)s::timestamptz IS NULL OR %(resume_at)s::timestamptz > statement_timestamp()
ON CONFLICT (name) DO UPDATE
SET paused_at = EXCLUDED.paused_at,
    resume_at = EXCLUDED.resume_at,
    paused_by = EXCLUDED.paused_by,
    pause_reason = EXCLUDED.pause_reason
RETURNING NOT EXISTS (SELECT FROM before WHERE before.paused_at IS NOT NULL);
