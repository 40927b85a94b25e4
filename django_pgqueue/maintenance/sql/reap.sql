-- Send jobs back whose worker died while running them: queued at once, the attempt counted where it had begun, "worker
-- lost" in the history. The slot of a concurrency key is kept. Called by reaper.settle(). Never waits: locked rows are
-- left for the next pass. Found like those of finish.sql. Returns ids, and arguments if signals are sent for them.
WITH lost AS MATERIALIZED (
    SELECT job.place, ack.error::jsonb AS error, ack.begun
    FROM unnest(
        %(ids)s::bigint[], %(lease_tokens)s::bigint[], %(errors)s::text[], %(begun)s::boolean[]
    ) AS ack (id, lease_token, error, begun)
    CROSS JOIN LATERAL (
        SELECT one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.id = ack.id AND one.lease_token = ack.lease_token
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
)
UPDATE pgqueue_jobs AS job
SET status = 'queued',
    attempts = job.attempts - (NOT lost.begun)::integer,
    first_started_at = CASE
        WHEN lost.begun OR job.attempts > 1 OR job.snoozes > 0 THEN job.first_started_at
        ELSE 'epoch'
    END,
    lease_token = 0,
    worker_id = 0,
    lost = job.lost + 1,
    errors = CASE WHEN jsonb_array_length(job.errors) >= 20 THEN job.errors - 10 ELSE job.errors END
        || (
            lost.error
            || jsonb_build_object(
                'attempt', job.attempts, 'worker_id', job.worker_id, 'started_at', job.started_at,
                'at', statement_timestamp()
            )
        )
FROM lost
WHERE job.ctid = lost.place
RETURNING
    job.id,
    CASE WHEN %(is_told)s::boolean THEN job.args::text END,
    CASE WHEN %(is_told)s::boolean THEN job.kwargs::text END;
