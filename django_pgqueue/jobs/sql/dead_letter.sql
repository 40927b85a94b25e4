-- Move jobs to dead_jobs, with the reason and a last entry in their history. Called by ack.send() for failures, and by
-- dead_letter.dead_letter() for lost workers, kills and expiry. Never waits: locked rows are left out. Found like those
-- of finish.sql; the token 0 stands for a job that is not running, and leaves reserved rows alone, as the reason
-- expired does with those that got more time meanwhile. Returns the ids it moved, whether a caller waits, their
-- concurrency keys, and for receivers of signals, if there are any, the rest of an event.
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
          -- filters only: the row is found by primary key
          AND (ack.lease_token <> 0 OR one.status <> 'reserved')
          AND (ack.lease_token <> 0 OR ack.reason <> 'expired' OR one.expires_at <= statement_timestamp())
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS job
),
removed AS (
    DELETE FROM pgqueue_jobs AS job
    USING died
    WHERE job.ctid = died.place
    RETURNING
        job.*, died.reason AS reason, died.error AS error,
        -- an expiry that the claim found out is no attempt
        job.attempts - (died.reason = 'expired' AND job.lease_token <> 0)::integer AS runs
),
gone AS (
    SELECT
        job.*,
        job.error
            || CASE
                WHEN job.reason = 'killed' THEN jsonb_build_object('by', COALESCE(job.killed_by, %(by)s::text))
                WHEN job.reason = 'expired' THEN jsonb_build_object(
                    'message',
                    'not started by ' || to_char(job.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
                )
                ELSE '{}'
            END
            || CASE
                WHEN job.worker_id <> 0 AND job.runs = job.attempts
                THEN jsonb_build_object('worker_id', job.worker_id, 'started_at', job.started_at)
                ELSE '{}'
            END
            || jsonb_build_object('attempt', job.runs, 'at', statement_timestamp()) AS entry
    FROM removed AS job
),
buried AS (
    INSERT INTO pgqueue_dead_jobs (
        id, died_at, run_at, enqueued_at, first_started_at, started_at, worker_id, schedule_id, parent_id, stage_id, expires_at,
        lease_seconds, timeout_seconds, priority, attempts, max_attempts, lost, snoozes, concurrency_limit,
        unique_hold_seconds, keep, keep_seconds, concurrency_strict, reason, queue, task, backend, args, kwargs,
        unique_key, unique_until, concurrency_key, fair_key, killed_by, tags, metadata, progress, errors
    )
    SELECT
        gone.id, statement_timestamp(), gone.run_at, gone.enqueued_at,
        CASE
            WHEN gone.reason = 'expired' AND gone.runs = 0 AND gone.snoozes = 0 THEN 'epoch'
            ELSE gone.first_started_at
        END,
        gone.started_at, gone.worker_id, gone.schedule_id, gone.parent_id, gone.stage_id, gone.expires_at,
        gone.lease_seconds, gone.timeout_seconds, gone.priority, gone.runs, gone.max_attempts,
        LEAST(gone.lost + (gone.reason = 'lost')::integer, 32767), gone.snoozes, gone.concurrency_limit,
        gone.unique_hold_seconds, gone.keep, gone.keep_seconds, gone.concurrency_strict, gone.reason, gone.queue,
        gone.task, gone.backend, gone.args, gone.kwargs, gone.unique_key, gone.unique_until, gone.concurrency_key,
        gone.fair_key,
        COALESCE(gone.killed_by, %(by)s::text), gone.tags, gone.metadata, gone.progress,
        CASE WHEN jsonb_array_length(gone.errors) >= 20 THEN gone.errors - 10 ELSE gone.errors END
            || gone.entry
    FROM gone
)
SELECT
    gone.id, gone.has_waiters, gone.concurrency_key,
    CASE
        WHEN %(is_told)s::boolean
        THEN jsonb_build_object(
            'task', gone.task, 'queue', gone.queue, 'attempt', gone.runs, 'max_attempts', gone.max_attempts,
            'reason', gone.reason, 'error', gone.entry, 'args', gone.args::text, 'kwargs', gone.kwargs::text
        )::text
    END
FROM gone;
