-- Move jobs to dead_jobs, with the reason and a last entry in their history. Called by dead_letter.dead_letter() for failures,
-- lost workers and kills. Never waits: locked rows are left out. Found by primary key, fenced by lease token; the token
-- 0 stands for a job that is not running, and leaves tombstones alone. Returns the ids it moved.
WITH died AS MATERIALIZED (
    SELECT job.id, ack.reason, ack.error::jsonb AS error
    FROM unnest(
        %(ids)s::bigint[], %(lease_tokens)s::bigint[], %(reasons)s::text[], %(errors)s::text[]
    ) AS ack (id, lease_token, reason, error)
    JOIN pgqueue_jobs AS job USING (id, lease_token)
    WHERE ack.lease_token <> 0 OR job.status <> 'held'  -- a filter only: the rows are found by primary key
    FOR UPDATE OF job SKIP LOCKED
),
gone AS (
    DELETE FROM pgqueue_jobs AS job
    USING died
    WHERE job.id = died.id
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
