-- Insert members of stages of a workflow, of which some have keys or expire. Called by unique.insert() in the caller's
-- transaction. The same as enqueue_keyed_calls.sql but for the stage, which is one of the options, and the status of
-- members whose stage is not open yet: they take their turns when it opens. Apart from that one for the same reason as
-- enqueue_members.sql.
WITH options AS MATERIALIZED (
    SELECT *
    FROM json_to_recordset(%(options)s::json) AS options (
        number integer, task text, queue text, priority smallint, run_at timestamptz, delay_seconds double precision,
        max_attempts smallint, lease_seconds integer, timeout_seconds integer, keep boolean, keep_seconds integer,
        parent_id bigint, schedule_id bigint, backend text, tags text[], metadata text, expires_at timestamptz,
        expires_seconds double precision, unique_until text, unique_hold_seconds integer, concurrency_limit smallint,
        concurrency_strict boolean, stage_id bigint, is_blocked boolean
    )
),
call AS MATERIALIZED (
    SELECT
        call.*,
        options.queue,
        options.priority,
        options.is_blocked,
        COALESCE(options.run_at, statement_timestamp() + make_interval(secs => options.delay_seconds)) AS run_at
    FROM ROWS FROM (
        generate_series(1, %(number)s::integer),
        unnest(%(numbers)s::integer[]),
        json_array_elements(%(args)s::json),
        json_array_elements(%(kwargs)s::json),
        unnest(%(unique_keys)s::text[]),
        unnest(%(concurrency_keys)s::text[]),
        unnest(%(fair_keys)s::text[])
    ) AS call (position, options, args, kwargs, unique_key, concurrency_key, fair_key)
    JOIN options ON options.number = call.options
),
turn AS MATERIALIZED (
    SELECT turn.position, turn.turn_at
    FROM (
        SELECT
            call.queue,
            call.priority,
            array_agg(call.position ORDER BY call.position) AS positions,
            array_agg(call.fair_key ORDER BY call.position) AS keys
        FROM call
        WHERE call.fair_key IS NOT NULL AND NOT call.is_blocked
        GROUP BY call.queue, call.priority
    ) AS line
    CROSS JOIN LATERAL ROWS FROM (
        unnest(line.positions),
        pgqueue_turns(line.queue, line.priority, line.keys)
    ) AS turn (position, turn_at)
)
INSERT INTO pgqueue_jobs (
    task, queue, priority, run_at, status, max_attempts, lease_seconds, timeout_seconds, keep, keep_seconds, parent_id,
    schedule_id, stage_id, backend, args, kwargs, tags, metadata, expires_at, unique_key, unique_until, unique_hold_seconds,
    concurrency_key, concurrency_limit, concurrency_strict, fair_key
)
SELECT
    options.task,
    options.queue,
    options.priority,
    CASE
        WHEN call.run_at > statement_timestamp() OR call.fair_key IS NULL OR call.is_blocked THEN call.run_at
        ELSE turn.turn_at
    END,
    CASE
        WHEN call.is_blocked THEN 'blocked'
        WHEN call.run_at > statement_timestamp() THEN 'scheduled'
        WHEN call.concurrency_key IS NOT NULL THEN 'limited'
        ELSE 'queued'
    END,
    options.max_attempts,
    options.lease_seconds,
    options.timeout_seconds,
    options.keep,
    options.keep_seconds,
    options.parent_id,
    options.schedule_id,
    options.stage_id,
    options.backend,
    COALESCE(call.args::jsonb, '[]'),
    COALESCE(call.kwargs::jsonb, '{}'),
    options.tags,
    options.metadata::jsonb,
    COALESCE(
        options.expires_at,
        GREATEST(call.run_at, statement_timestamp()) + make_interval(secs => options.expires_seconds)
    ),
    call.unique_key,
    CASE WHEN call.unique_key IS NOT NULL THEN options.unique_until END,
    CASE WHEN call.unique_key IS NOT NULL THEN options.unique_hold_seconds ELSE 0 END,
    call.concurrency_key,
    CASE WHEN call.concurrency_key IS NOT NULL THEN options.concurrency_limit END,
    options.concurrency_strict,
    call.fair_key
FROM call
JOIN options ON options.number = call.options
LEFT JOIN turn ON turn.position = call.position
ORDER BY call.unique_key COLLATE "C", call.position
ON CONFLICT (unique_key) WHERE unique_until IN ('end', 'start') DO NOTHING
RETURNING
    id, status = 'queued', status = 'limited', unique_key,
    CASE WHEN backend <> '' THEN enqueued_at END,
    CASE WHEN backend <> '' THEN run_at END;
