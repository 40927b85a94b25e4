-- Move jobs that succeeded to succeeded_jobs, with result and run time. Called like finish.sql, when history is on, and
-- finds its rows in the same way. Never waits: locked rows are left for the next flush. No results at all means that
-- all are null; one that was left out, because it cannot be stored, is NULL. Progress that is given, as that with the
-- log lines of the run, replaces what the row has. Returns the ids, and whether a caller waits.
WITH done AS MATERIALIZED (
    SELECT
        job.place,
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
    RETURNING job.*, done.result AS result, done.run_seconds AS run_seconds, done.told AS told
),
kept AS (
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
)
SELECT gone.id, gone.has_waiters
FROM gone;
