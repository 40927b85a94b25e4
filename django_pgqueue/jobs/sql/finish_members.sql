-- End members of workflows that succeeded, of stages that collect results, or that hold their unique key for a while:
-- remove them, or turn them into reserved rows, which are no members any more. Called like finish.sql, and finds its rows
-- in the same way. Those that are kept go to succeeded_jobs as by archive.sql, and the results that a stage collects to
-- pgqueue_stage_results. Never waits: locked rows are left for the next flush. Returns the ids, and whether a caller
-- waits.
WITH done AS MATERIALIZED (
    SELECT
        job.*,
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
        SELECT one.*, one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.id = ack.id AND one.lease_token = ack.lease_token
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS job
),
gone AS (
    DELETE FROM pgqueue_jobs AS job
    USING done
    WHERE job.ctid = done.place AND done.unique_hold_seconds = 0
),
held AS (
    UPDATE pgqueue_jobs AS job
    SET status = 'reserved',
        run_at = statement_timestamp() + make_interval(secs => job.unique_hold_seconds),
        lease_token = 0,
        worker_id = 0,
        stage_id = NULL,
        concurrency_slot = NULL,
        expires_at = NULL,
        args = '[]',
        kwargs = '{}',
        tags = NULL,
        metadata = '{}',
        progress = NULL,
        errors = '[]'
    FROM done
    WHERE job.ctid = done.place AND done.unique_hold_seconds > 0
),
kept AS (
    INSERT INTO pgqueue_succeeded_jobs (
        id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, worker_id, schedule_id, parent_id, stage_id,
        run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, result, tags, metadata, progress,
        errors, prune_at
    )
    SELECT
        done.id, statement_timestamp(), done.enqueued_at, done.run_at, done.first_started_at, done.started_at,
        done.worker_id, done.schedule_id, done.parent_id, done.stage_id, done.run_seconds, done.priority, done.attempts,
        done.lost, done.queue, done.task, done.backend, done.args, done.kwargs, done.result, done.tags,
        done.metadata,
        COALESCE(done.told, done.progress), done.errors, statement_timestamp() + make_interval(secs => done.keep_seconds)
    FROM done
    WHERE done.keep AND %(history)s::boolean
),
collected AS (
    INSERT INTO pgqueue_stage_results (job_id, stage_id, result)
    SELECT done.id, done.stage_id, done.result
    FROM done
    WHERE done.stage_id & 1 = 1
    ON CONFLICT DO NOTHING
)
SELECT done.id, done.has_waiters
FROM done;
