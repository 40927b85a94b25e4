-- End jobs that succeeded and put the next of each in its place: a new id, the same task, arguments, options and keys.
-- Called by ack.send() and, alone, in an atomic task's own transaction. Finds its rows as finish.sql does, and never
-- waits: locked rows are left for the next flush. The unique key passes from parent to child, so there is no conflict.
-- Returns the ids that ended, and whether a caller waits.
WITH done AS MATERIALIZED (
    SELECT
        job.place,
        CASE WHEN ack.left_out THEN NULL ELSE COALESCE(ack.result, 'null') END AS result,
        ack.run_seconds,
        COALESCE(ack.next_at, statement_timestamp() + make_interval(secs => ack.delay)) AS next_at,
        NULLIF(ack.progress, 'null') AS told
    FROM ROWS FROM (
        unnest(%(ids)s::bigint[]),
        unnest(%(lease_tokens)s::bigint[]),
        jsonb_array_elements(%(results)s::jsonb),
        unnest(%(run_seconds)s::double precision[]),
        unnest(%(delays)s::double precision[]),
        unnest(%(next_ats)s::timestamptz[]),
        unnest(%(left_out)s::boolean[]),
        jsonb_array_elements(%(last_progress)s::jsonb)
    ) AS ack (id, lease_token, result, run_seconds, delay, next_at, left_out, progress)
    CROSS JOIN LATERAL (
        SELECT one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.id = ack.id AND one.lease_token = ack.lease_token
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS job
),
gone AS (
    DELETE FROM pgqueue_jobs AS job
    USING done
    WHERE job.ctid = done.place
    RETURNING
        job.*, done.result AS result, done.run_seconds AS run_seconds, done.next_at AS next_at, done.told AS told
),
archived AS (
    INSERT INTO pgqueue_succeeded_jobs (
        id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, worker_id, schedule_id, parent_id,
        stage_id, run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, result, tags, metadata,
        progress, errors, prune_at
    )
    SELECT
        gone.id, statement_timestamp(), gone.enqueued_at, gone.run_at, gone.first_started_at, gone.started_at,
        gone.worker_id, gone.schedule_id, gone.parent_id, gone.stage_id, gone.run_seconds, gone.priority, gone.attempts,
        gone.lost, gone.queue, gone.task, gone.backend, gone.args, gone.kwargs, gone.result, gone.tags, gone.metadata,
        COALESCE(gone.told, gone.progress), gone.errors, statement_timestamp() + make_interval(secs => gone.keep_seconds)
    FROM gone
    WHERE gone.keep AND %(history)s::boolean
),
-- Scheduled even if it is due: promote knows of concurrency and fair keys, and reacquire of keys that the start gave
-- up.
next AS (
    INSERT INTO pgqueue_jobs (
        run_at, parent_id, stage_id, expires_at, lease_seconds, timeout_seconds, unique_hold_seconds, priority,
        max_attempts, concurrency_limit, keep, keep_seconds, concurrency_strict, status, queue, task, backend, args, kwargs,
        unique_key, unique_until, concurrency_key, fair_key, tags, metadata
    )
    SELECT
        gone.next_at, gone.id, gone.stage_id,
        -- for as long as its parent, whose run_at says no more when that was once it is a retry's, or a turn
        gone.next_at + (gone.expires_at - GREATEST(LEAST(gone.run_at, gone.first_started_at), gone.enqueued_at)),
        gone.lease_seconds, gone.timeout_seconds, gone.unique_hold_seconds, gone.priority, gone.max_attempts,
        gone.concurrency_limit, gone.keep, gone.keep_seconds, gone.concurrency_strict, 'scheduled', gone.queue,
        gone.task, gone.backend, gone.args, gone.kwargs, gone.unique_key, gone.unique_until, gone.concurrency_key,
        gone.fair_key, gone.tags,
        -- a trace of its own: that of a chain would never end
        CASE
            WHEN jsonb_typeof(gone.metadata) = 'object' THEN gone.metadata - '{traceparent,tracestate}'::text[]
            ELSE gone.metadata
        END
    FROM gone
    WHERE gone.kill_requested_at IS NULL  -- who asks one to stop means the chain
)
SELECT gone.id, gone.has_waiters
FROM gone;
