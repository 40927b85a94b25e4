-- Insert many jobs of one task with the same options. Called by enqueue.insert_many() in the caller's transaction.
-- Locks nothing but its own rows. Returns the new ids, which ascend in the order of the arguments, and whether they may
-- run now; of jobs of the Tasks framework also when they were enqueued and are due. Arguments come as one JSON array
-- for all jobs, or as NULL if no job has any.
INSERT INTO pgqueue_jobs (
    task, queue, priority, run_at, status, max_attempts, lease_seconds, timeout_seconds, keep, keep_seconds, parent_id,
    backend, args, kwargs, tags, metadata
)
SELECT
    %(task)s::text,
    %(queue)s::text,
    %(priority)s::smallint,
    due.run_at,
    CASE WHEN due.run_at > statement_timestamp() THEN 'scheduled' ELSE 'queued' END,
    %(max_attempts)s::smallint,
    %(lease_seconds)s::integer,
    %(timeout_seconds)s::integer,
    %(keep)s::boolean,
    %(keep_seconds)s::integer,
    %(parent_id)s::bigint,
    %(backend)s::text,
    COALESCE(call.args::jsonb, '[]'),
    COALESCE(call.kwargs::jsonb, '{}'),
    %(tags)s::text[],
    %(metadata)s::jsonb
FROM (
    SELECT COALESCE(
        %(run_at)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay_seconds)s::double precision)
    )
) AS due (run_at)
CROSS JOIN ROWS FROM (
    generate_series(1, %(number)s::integer),
    json_array_elements(%(args)s::json),
    json_array_elements(%(kwargs)s::json)
) AS call (position, args, kwargs)
ORDER BY call.position
RETURNING
    id, status = 'queued',
    CASE WHEN backend <> '' THEN enqueued_at END,
    CASE WHEN backend <> '' THEN run_at END;
