-- Put jobs that have asked to run later back to scheduled, their attempt restored and the snooze counted: by the one
-- statement that ends the lease, so that a run that is not written down is no snooze. Called by ack.send(). Never waits:
-- locked rows are left for the next flush. Found like those of finish.sql. The slot of a concurrency key is given back,
-- unless the job is to keep its place. Returns ids, and false like retry.sql.
WITH snoozed AS MATERIALIZED (
    SELECT job.place, ack.delay_seconds
    FROM unnest(
        %(ids)s::bigint[], %(lease_tokens)s::bigint[], %(delays)s::double precision[]
    ) AS ack (id, lease_token, delay_seconds)
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
    run_at = statement_timestamp() + make_interval(secs => snoozed.delay_seconds),
    concurrency_slot = CASE WHEN job.concurrency_strict THEN job.concurrency_slot END,
    attempts = job.attempts - 1,
    snoozes = LEAST(job.snoozes + 1, 32767),
    lease_token = 0,
    worker_id = 0
FROM snoozed
WHERE job.ctid = snoozed.place
RETURNING job.id, false;
