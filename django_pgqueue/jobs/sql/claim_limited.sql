-- Take the next jobs of one queue that is limited, as claim.sql does, but no more than its limits let in. Called by
-- claim.send_limited() just after try_lock.sql, without whose lock it takes nothing: only one session may count, and
-- the count must be younger than the lock. Walks along pgqueue_jobs_running for room. Steps over locked jobs, and over
-- the queue's row while it is locked; locks that only to spend tokens. Returns the same columns.
WITH limits AS MATERIALIZED (
    SELECT one.max_running, one.rate_limit
    FROM pgqueue_queues AS one
    WHERE one.name = %(queue)s::text
      AND current_setting('pgqueue.admitting')::jsonb ? one.name
      AND (one.paused_at IS NULL OR one.resume_at <= statement_timestamp())
),
bucket AS MATERIALIZED (
    SELECT filled.tokens
    FROM pgqueue_queues AS one
    CROSS JOIN LATERAL (
        -- abs: a clock that was set back fills the bucket too; else nothing would start until it is as late again
        SELECT LEAST(
            one.rate_burst,
            one.tokens + abs(extract(epoch FROM statement_timestamp() - one.tokens_at))::double precision
                * one.rate_limit / one.rate_period_seconds
        ) + 0.000001 AS tokens
    ) AS filled
    WHERE one.name = %(queue)s::text
      AND one.rate_limit IS NOT NULL
      AND filled.tokens >= 1
      AND EXISTS (SELECT FROM limits)
    FOR NO KEY UPDATE OF one SKIP LOCKED
),
room AS MATERIALIZED (
    SELECT LEAST(
        %(limit)s::bigint,
        CASE
            WHEN limits.max_running IS NOT NULL THEN limits.max_running - (
                SELECT count(*)
                FROM (
                    SELECT
                    FROM pgqueue_jobs AS other
                    WHERE other.status = 'running' AND other.queue = %(queue)s::text
                    LIMIT limits.max_running
                ) AS running
            )
        END,
        CASE
            WHEN limits.rate_limit IS NOT NULL
            THEN COALESCE((SELECT floor(bucket.tokens)::bigint FROM bucket), 0)
        END
    ) AS places
    FROM limits
),
claimed AS (
    UPDATE pgqueue_jobs
    SET status = 'running',
        attempts = LEAST(attempts + 1, 32767),
        lease_token = %(lease_token)s::bigint,
        lease_until = statement_timestamp() + make_interval(secs => lease_seconds),
        worker_id = %(worker_id)s::bigint,
        unique_until = CASE
            WHEN unique_until = 'start' THEN 'started'
            WHEN unique_until = 'end' AND (expires_at <= statement_timestamp() OR kill_requested_at IS NOT NULL)
            THEN 'given_up'
            ELSE unique_until
        END,
        started_at = statement_timestamp(),
        first_started_at = CASE WHEN first_started_at = 'epoch' THEN statement_timestamp() ELSE first_started_at END
    WHERE ctid = ANY (ARRAY(
        SELECT job.ctid
        FROM pgqueue_jobs AS job
        WHERE job.queue = %(queue)s::text
          AND job.status = 'queued'
          AND job.run_at <= statement_timestamp()
        ORDER BY (-job.priority), job.run_at, job.id
        LIMIT COALESCE((SELECT room.places FROM room), 0)
        FOR NO KEY UPDATE SKIP LOCKED
    ))
    RETURNING
        -priority AS rank,
        date_part('epoch', run_at) AS run_at,
        id, task, args::text AS args, kwargs::text AS kwargs, attempts, max_attempts,
        CASE
            WHEN kill_requested_at IS NOT NULL THEN -1
            WHEN expires_at <= statement_timestamp() THEN -2
            ELSE timeout_seconds
        END AS timeout_seconds,
        lost, keep::integer + 2 * (unique_hold_seconds > 0)::integer
            + CASE WHEN stage_id IS NULL THEN 0 ELSE 4 + 8 * (stage_id & 1)::integer END AS flags,
        first_started_at < statement_timestamp() - INTERVAL '1 day' AS is_old, concurrency_key,
        CASE
            WHEN backend <> '' OR metadata <> '{}' OR snoozes <> 0 OR concurrency_slot > 1
            THEN jsonb_build_object(
                'backend', backend, 'metadata', metadata, 'enqueued_at', enqueued_at,
                'first_started_at', first_started_at, 'started_at', started_at, 'worker_id', worker_id, 'errors', errors,
                'snoozes', snoozes, 'slot', concurrency_slot, 'stage_id', stage_id
            )::text
            WHEN stage_id IS NOT NULL THEN stage_id::text
        END AS rest,
        CASE WHEN fair_key IS NOT NULL OR run_at < enqueued_at THEN date_part('epoch', enqueued_at) END AS enqueued_at
),
spent AS (
    UPDATE pgqueue_queues AS one
    SET tokens = GREATEST(bucket.tokens - (SELECT count(*) FROM claimed), 0),
        tokens_at = statement_timestamp()
    FROM bucket
    -- not by ctid: a row that was changed between snapshot and lock would be missed
    WHERE one.name = %(queue)s::text AND EXISTS (SELECT FROM claimed)
)
SELECT
    claimed.rank, claimed.run_at, claimed.id, claimed.task, claimed.args, claimed.kwargs, claimed.attempts,
    claimed.max_attempts, claimed.timeout_seconds, claimed.lost, claimed.flags, claimed.is_old, claimed.concurrency_key,
    claimed.rest, claimed.enqueued_at
FROM claimed;
