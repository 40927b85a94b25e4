-- Insert one job. Called by enqueue.insert() in the caller's transaction. Locks nothing but its own row. A missing
-- run_at means queued; a later one is compared by the clock of this statement, because now() is as old as the caller's
-- transaction. Returns the new id, and whether it may run now; of a job of the Tasks framework also when it was
-- enqueued and is due.
INSERT INTO pgqueue_jobs (
    task, queue, priority, run_at, status, max_attempts, lease_seconds, timeout_seconds, keep, keep_seconds, parent_id,
    schedule_id, backend, args, kwargs, tags, metadata
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
    %(schedule_id)s::bigint,
    %(backend)s::text,
    %(args)s::jsonb,
    %(kwargs)s::jsonb,
    %(tags)s::text[],
    %(metadata)s::jsonb
FROM (
    SELECT COALESCE(
        %(run_at)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay_seconds)s::double precision)
    )
) AS due (run_at)
RETURNING
    id, status = 'queued',
    CASE WHEN backend <> '' THEN enqueued_at END,
    CASE WHEN backend <> '' THEN run_at END;
