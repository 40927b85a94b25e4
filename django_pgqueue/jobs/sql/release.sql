-- Give jobs back that were not run, or not to their end, with the attempt restored: queued at once, or scheduled after
-- a delay. Called by leases.release(), and by ack.send(), for outcomes, for children that died, for claims that were
-- never answered. Never waits: locked rows are left out. Found like those of finish.sql. The slot of a concurrency key
-- is kept, but not over a delay, unless the job is to keep its place. Returns ids, and false like retry.sql.
WITH unrun AS MATERIALIZED (
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
SET status = CASE WHEN unrun.delay_seconds > 0 THEN 'scheduled' ELSE 'queued' END,
    run_at = CASE
        WHEN unrun.delay_seconds > 0 THEN statement_timestamp() + make_interval(secs => unrun.delay_seconds)
        ELSE job.run_at
    END,
    concurrency_slot = CASE
        WHEN unrun.delay_seconds > 0 AND NOT job.concurrency_strict THEN NULL
        ELSE job.concurrency_slot
    END,
    attempts = job.attempts - 1,
    first_started_at = CASE
        WHEN unrun.delay_seconds > 0 OR job.attempts > 1 OR job.snoozes > 0 THEN job.first_started_at
        ELSE 'epoch'
    END,
    lease_token = 0,
    worker_id = 0
FROM unrun
WHERE job.ctid = unrun.place
RETURNING job.id, false;
