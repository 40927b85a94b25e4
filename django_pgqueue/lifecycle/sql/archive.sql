-- Move jobs that succeeded to finished_jobs, with result and run time. Called like finish.sql, when history is on, and
-- finds its rows in the same way. Never waits: locked rows are left for the next flush. No results at all means that all
-- are null.
WITH done AS MATERIALIZED (
    SELECT job.place, COALESCE(ack.result, 'null') AS result, ack.run_seconds
    FROM ROWS FROM (
        unnest(%(ids)s::bigint[]),
        unnest(%(lease_tokens)s::bigint[]),
        jsonb_array_elements(%(results)s::jsonb),
        unnest(%(run_seconds)s::double precision[])
    ) AS ack (id, lease_token, result, run_seconds)
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
    RETURNING job.*, done.result AS result, done.run_seconds AS run_seconds
)
INSERT INTO pgqueue_finished_jobs (
    id, finished_at, enqueued_at, run_at, first_started_at, started_at, worker_id, schedule_id, parent_id, run_seconds,
    priority, attempts, lost, queue, task, backend, args, kwargs, result, metadata, progress, errors
)
SELECT
    gone.id, statement_timestamp(), gone.enqueued_at, gone.run_at, gone.first_started_at, gone.started_at,
    gone.worker_id, gone.schedule_id, gone.parent_id, gone.run_seconds, gone.priority, gone.attempts, gone.lost,
    gone.queue, gone.task, gone.backend, gone.args, gone.kwargs, gone.result, gone.metadata, gone.progress,
    gone.errors
FROM gone
RETURNING id;
