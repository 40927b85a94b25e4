-- Insert jobs of one task that have keys or expire. Called by unique.insert() in the caller's transaction. Waits for a
-- transaction that has inserted the same unique key and is still open; so the rows come in order of that key. Locks
-- nothing but its own rows, and leaves out a job that meets a conflicting job. Leans on pgqueue_jobs_unique, and in
-- pgqueue_turns() on pgqueue_jobs_claim and _fair. Returns id, whether it may run now, whether it waits to be admitted,
-- the unique key; of jobs of the Tasks framework also when they were enqueued and are due.
WITH call AS MATERIALIZED (
    SELECT
        call.*,
        COALESCE(
            %(run_at)s::timestamptz,
            statement_timestamp() + make_interval(secs => %(delay_seconds)s::double precision)
        ) AS run_at
    FROM ROWS FROM (
        generate_series(1, %(number)s::integer),
        json_array_elements(%(args)s::json),
        json_array_elements(%(kwargs)s::json),
        unnest(%(unique_keys)s::text[]),
        unnest(%(concurrency_keys)s::text[]),
        unnest(%(fair_keys)s::text[]),
        -- one microsecond after the last of its key, but no sooner than the queue's head and no later than now
        pgqueue_turns(%(queue)s::text, %(priority)s::smallint, %(fair_keys)s::text[])
    ) AS call (position, args, kwargs, unique_key, concurrency_key, fair_key, turn_at)
)
INSERT INTO pgqueue_jobs (
    task, queue, priority, run_at, status, max_attempts, lease_seconds, timeout_seconds, keep, keep_seconds, parent_id,
    schedule_id, backend, args, kwargs, tags, metadata, expires_at, unique_key, unique_until, unique_hold_seconds,
    concurrency_key, concurrency_limit, concurrency_strict, fair_key
)
SELECT
    %(task)s::text,
    %(queue)s::text,
    %(priority)s::smallint,
    CASE
        WHEN call.run_at > statement_timestamp() OR call.fair_key IS NULL THEN call.run_at
        ELSE call.turn_at
    END,
    CASE
        WHEN call.run_at > statement_timestamp() THEN 'scheduled'
        WHEN call.concurrency_key IS NOT NULL THEN 'limited'
        ELSE 'queued'
    END,
    %(max_attempts)s::smallint,
    %(lease_seconds)s::integer,
    %(timeout_seconds)s::integer,
    %(keep)s::boolean,
    %(keep_seconds)s::integer,
    %(parent_id)s::bigint,
    %(schedule_id)s::bigint,
    %(backend)s::text,
    COALESCE(call.args::jsonb, '[]'),
    COALESCE(call.kwargs::jsonb, '{}'),
    %(tags)s::text[],
    %(metadata)s::jsonb,
    COALESCE(
        %(expires_at)s::timestamptz,
        GREATEST(call.run_at, statement_timestamp()) + make_interval(secs => %(expires_seconds)s::double precision)
    ),
    call.unique_key,
    CASE WHEN call.unique_key IS NOT NULL THEN %(unique_until)s::text END,
    CASE WHEN call.unique_key IS NOT NULL THEN %(unique_hold_seconds)s::integer ELSE 0 END,
    call.concurrency_key,
    CASE WHEN call.concurrency_key IS NOT NULL THEN %(concurrency_limit)s::smallint END,
    %(concurrency_strict)s::boolean,
    call.fair_key
FROM call
ORDER BY call.unique_key COLLATE "C", call.position
ON CONFLICT (unique_key) WHERE unique_until IN ('end', 'start') DO NOTHING
RETURNING
    id, status = 'queued', status = 'limited', unique_key,
    CASE WHEN backend <> '' THEN enqueued_at END,
    CASE WHEN backend <> '' THEN run_at END;
