-- Insert members of stages of a workflow, of any tasks and with any options of each. Called by enqueue.insert_members()
-- in the caller's transaction. The same as enqueue_calls.sql but for the stage, which is one of the options, and the
-- status of members whose stage is not open yet. A statement of its own: who may enqueue jobs alone may not insert a
-- stage.
WITH options AS MATERIALIZED (
    SELECT
        options.*,
        due.run_at AS due_at,
        CASE
            WHEN options.is_blocked THEN 'blocked'
            WHEN due.run_at > statement_timestamp() THEN 'scheduled'
            ELSE 'queued'
        END AS status,
        options.metadata::jsonb AS metadata_object
    FROM json_to_recordset(%(options)s::json) AS options (
        number integer, task text, queue text, priority smallint, run_at timestamptz, delay_seconds double precision,
        max_attempts smallint, lease_seconds integer, timeout_seconds integer, keep boolean, keep_seconds integer,
        parent_id bigint, schedule_id bigint, backend text, tags text[], metadata text, stage_id bigint, is_blocked boolean
    )
    CROSS JOIN LATERAL (
        SELECT COALESCE(options.run_at, statement_timestamp() + make_interval(secs => options.delay_seconds))
    ) AS due (run_at)
)
INSERT INTO pgqueue_jobs (
    task, queue, priority, run_at, status, max_attempts, lease_seconds, timeout_seconds, keep, keep_seconds, parent_id,
    schedule_id, stage_id, backend, args, kwargs, tags, metadata
)
SELECT
    options.task,
    options.queue,
    options.priority,
    options.due_at,
    options.status,
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
    options.metadata_object
FROM ROWS FROM (
    generate_series(1, %(number)s::integer),
    unnest(%(numbers)s::integer[]),
    json_array_elements(%(args)s::json),
    json_array_elements(%(kwargs)s::json)
) AS call (position, options, args, kwargs)
JOIN options ON options.number = call.options
ORDER BY call.position
RETURNING id, status = 'queued';
