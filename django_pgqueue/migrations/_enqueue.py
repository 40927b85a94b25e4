"""The way to enqueue from SQL, as migrations have made it."""

# The way to enqueue from SQL: it tells queued from scheduled by the database's clock, as enqueue() does in Python.
WITHOUT_KEYS = """
CREATE FUNCTION pgqueue_enqueue(
    task text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT 10
) RETURNS bigint
LANGUAGE sql
AS $$
    INSERT INTO pgqueue_jobs (task, args, kwargs, queue, priority, run_at, max_attempts, status)
    VALUES (
        pgqueue_enqueue.task,
        pgqueue_enqueue.args,
        pgqueue_enqueue.kwargs,
        pgqueue_enqueue.queue,
        pgqueue_enqueue.priority,
        COALESCE(pgqueue_enqueue.run_at, statement_timestamp()),
        pgqueue_enqueue.max_attempts,
        CASE WHEN pgqueue_enqueue.run_at > statement_timestamp() THEN 'scheduled' ELSE 'queued' END
    )
    RETURNING id
$$;
"""

# As enqueue() does in Python: a job that meets its twin is looked for in a statement of its own, with a newer snapshot.
# A tombstone whose time is over gives up the key.
WITH_KEYS = """
CREATE FUNCTION pgqueue_enqueue(
    task text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT 10,
    unique_key text DEFAULT NULL,
    unique_scope text DEFAULT 'live',
    concurrency_key text DEFAULT NULL,
    concurrency_limit integer DEFAULT 1
) RETURNS bigint
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    job_id bigint;
    is_over boolean;
BEGIN
    LOOP
        INSERT INTO pgqueue_jobs (
            task, args, kwargs, queue, priority, run_at, max_attempts, unique_key, unique_scope, concurrency_key,
            concurrency_limit, status
        )
        VALUES (
            pgqueue_enqueue.task,
            pgqueue_enqueue.args,
            pgqueue_enqueue.kwargs,
            pgqueue_enqueue.queue,
            pgqueue_enqueue.priority,
            COALESCE(pgqueue_enqueue.run_at, statement_timestamp()),
            pgqueue_enqueue.max_attempts,
            pgqueue_enqueue.unique_key,
            CASE WHEN pgqueue_enqueue.unique_key IS NOT NULL THEN pgqueue_enqueue.unique_scope END,
            pgqueue_enqueue.concurrency_key,
            CASE WHEN pgqueue_enqueue.concurrency_key IS NOT NULL THEN pgqueue_enqueue.concurrency_limit END,
            CASE
                WHEN pgqueue_enqueue.run_at > statement_timestamp() THEN 'scheduled'
                WHEN pgqueue_enqueue.concurrency_key IS NOT NULL THEN 'waiting'
                ELSE 'queued'
            END
        )
        ON CONFLICT (unique_key) WHERE unique_scope IN ('live', 'start') DO NOTHING
        RETURNING id INTO job_id;
        IF NOT FOUND THEN
            SELECT job.id, job.status = 'held' AND job.run_at <= statement_timestamp() INTO job_id, is_over
            FROM pgqueue_jobs AS job
            WHERE job.unique_key = pgqueue_enqueue.unique_key AND job.unique_scope IN ('live', 'start');
            IF is_over THEN
                UPDATE pgqueue_jobs SET unique_scope = 'started' WHERE id = job_id AND status = 'held';
                job_id := NULL;
            END IF;
        END IF;
        IF job_id IS NOT NULL THEN
            RETURN job_id;
        END IF;
    END LOOP;
END
$$;
"""
