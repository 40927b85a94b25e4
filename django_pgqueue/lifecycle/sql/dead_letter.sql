-- Move jobs to dead_jobs, with the reason and a last entry in their history. Called by ack.send() for failures, and by
-- dead_letter.dead_letter() for lost workers and kills. Never waits: locked rows are left out. Found like those of
-- finish.sql; the token 0 stands for a job that is not running, and leaves tombstones alone. Returns the ids it moved.
WITH died AS MATERIALIZED (
    SELECT job.place, ack.reason, ack.error::jsonb AS error
    FROM unnest(
        %(ids)s::bigint[], %(lease_tokens)s::bigint[], %(reasons)s::text[], %(errors)s::text[]
    ) AS ack (id, lease_token, reason, error)
    CROSS JOIN LATERAL (
        SELECT one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.id = ack.id
          AND one.lease_token = ack.lease_token
          AND (ack.lease_token <> 0 OR one.status <> 'held')  -- a filter only: the row is found by primary key
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS job
),
gone AS (
    DELETE FROM pgqueue_jobs AS job
    USING died
    WHERE job.ctid = died.place
    RETURNING job.*, died.reason AS reason, died.error AS error
)
INSERT INTO pgqueue_dead_jobs (
    id, died_at, run_at, enqueued_at, first_started_at, started_at, worker_id, schedule_id, parent_id, expires_at,
    lease_seconds, timeout_seconds, priority, attempts, max_attempts, lost, concurrency_limit, keep, reason, queue, task,
    backend, args, kwargs, unique_key, unique_scope, concurrency_key, fair_key, cancelled_by, metadata, progress, errors
)
SELECT
    gone.id, statement_timestamp(), gone.run_at, gone.enqueued_at, gone.first_started_at, gone.started_at,
    gone.worker_id, gone.schedule_id, gone.parent_id, gone.expires_at, gone.lease_seconds, gone.timeout_seconds,
    gone.priority, gone.attempts, gone.max_attempts, gone.lost + (gone.reason = 'lost')::integer, gone.concurrency_limit,
    gone.keep, gone.reason, gone.queue, gone.task, gone.backend, gone.args, gone.kwargs, gone.unique_key, gone.unique_scope,
    gone.concurrency_key, gone.fair_key, COALESCE(gone.cancelled_by, %(by)s::text), gone.metadata, gone.progress,
    CASE WHEN jsonb_array_length(gone.errors) >= 20 THEN gone.errors - 10 ELSE gone.errors END
        || (gone.error || jsonb_build_object('attempt', gone.attempts, 'at', statement_timestamp()))
FROM gone
RETURNING id;
