-- Send failed jobs back to be due again after a delay, with one entry more in their history (the first and the last ten
-- are kept). Called by ack.write(). Never waits: locked rows are left for the next flush. Found by primary key, fenced
-- by lease token.
WITH failed AS MATERIALIZED (
    SELECT job.id, ack.delay_seconds, ack.error::jsonb AS error
    FROM unnest(
        %(ids)s::bigint[], %(lease_tokens)s::bigint[], %(delays)s::double precision[], %(errors)s::text[]
    ) AS ack (id, lease_token, delay_seconds, error)
    JOIN pgqueue_jobs AS job USING (id, lease_token)
    FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE pgqueue_jobs AS job
SET status = 'scheduled',
    run_at = statement_timestamp() + make_interval(secs => failed.delay_seconds),
    lease_token = 0,
    worker_id = 0,
    errors = CASE WHEN jsonb_array_length(job.errors) >= 20 THEN job.errors - 10 ELSE job.errors END
        || (failed.error || jsonb_build_object('attempt', job.attempts, 'at', statement_timestamp()))
FROM failed
WHERE job.id = failed.id
RETURNING job.id;
