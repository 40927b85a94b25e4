-- Copy jobs that succeeded to succeeded_jobs, as archive.sql does, and turn them into reserved rows, as reserve_key.sql
-- does. Called like finish.sql, when history is on, and finds its rows in the same way. Never waits: locked rows are
-- left for the next flush.
WITH done AS MATERIALIZED (
    SELECT
        job.*,
        CASE WHEN ack.left_out THEN NULL ELSE COALESCE(ack.result, 'null') END AS result,
        ack.run_seconds,
        NULLIF(ack.progress, 'null') AS told
    FROM ROWS FROM (
        unnest(%(ids)s::bigint[]),
        unnest(%(lease_tokens)s::bigint[]),
        jsonb_array_elements(%(results)s::jsonb),
        unnest(%(run_seconds)s::double precision[]),
        unnest(%(left_out)s::boolean[]),
        jsonb_array_elements(%(last_progress)s::jsonb)
    ) AS ack (id, lease_token, result, run_seconds, left_out, progress)
    CROSS JOIN LATERAL (
        SELECT one.*, one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.id = ack.id AND one.lease_token = ack.lease_token
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
),
held AS (
    UPDATE pgqueue_jobs AS job
    SET status = 'reserved',
        run_at = statement_timestamp() + make_interval(secs => job.unique_hold_seconds),
        lease_token = 0,
        worker_id = 0,
        concurrency_slot = NULL,
        expires_at = NULL,
        args = '[]',
        kwargs = '{}',
        tags = NULL,
        metadata = '{}',
        progress = NULL,
        errors = '[]'
    FROM done
    WHERE job.ctid = done.place
    RETURNING done.*
),
kept AS (
    INSERT INTO pgqueue_succeeded_jobs (
        id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, worker_id, schedule_id, parent_id,
        run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, result, tags, metadata, progress,
        errors, prune_at
    )
    SELECT
        held.id, statement_timestamp(), held.enqueued_at, held.run_at, held.first_started_at, held.started_at,
        held.worker_id, held.schedule_id, held.parent_id, held.run_seconds, held.priority, held.attempts, held.lost,
        held.queue, held.task, held.backend, held.args, held.kwargs, held.result, held.tags, held.metadata,
        COALESCE(held.told, held.progress), held.errors, statement_timestamp() + make_interval(secs => held.keep_seconds)
    FROM held
)
SELECT held.id, held.has_waiters
FROM held;
