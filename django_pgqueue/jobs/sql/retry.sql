-- Send failed jobs back to be due again after a delay, with one entry more in their history (the first and the last ten
-- are kept). Called by ack.send(). Never waits: locked rows are left for the next flush. Found like those of
-- finish.sql. The slot of a concurrency key is given back, unless the job is to keep its place. Returns ids, false
-- where others return whether a caller waits for the end, concurrency keys, and arguments for the signals of
-- them.
WITH failed AS MATERIALIZED (
    SELECT job.place, ack.delay_seconds, ack.error::jsonb AS error
    FROM unnest(
        %(ids)s::bigint[], %(lease_tokens)s::bigint[], %(delays)s::double precision[], %(errors)s::text[]
    ) AS ack (id, lease_token, delay_seconds, error)
    CROSS JOIN LATERAL (
        SELECT one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.id = ack.id AND one.lease_token = ack.lease_token
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
)
UPDATE pgqueue_jobs AS job
SET status = 'scheduled',
    run_at = statement_timestamp() + make_interval(secs => failed.delay_seconds),
    concurrency_slot = CASE WHEN job.concurrency_strict THEN job.concurrency_slot END,
    lease_token = 0,
    worker_id = 0,
    errors = CASE WHEN jsonb_array_length(job.errors) >= 20 THEN job.errors - 10 ELSE job.errors END
        || (
            failed.error
            || jsonb_build_object(
                'attempt', job.attempts, 'worker_id', job.worker_id, 'started_at', job.started_at,
                'at', statement_timestamp()
            )
        )
FROM failed
WHERE job.ctid = failed.place
RETURNING
    job.id, false, job.concurrency_key,
    CASE WHEN %(is_told)s::boolean THEN job.args::text END,
    CASE WHEN %(is_told)s::boolean THEN job.kwargs::text END;
