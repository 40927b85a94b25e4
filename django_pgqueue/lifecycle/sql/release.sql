-- Give jobs back that were not run, or not to their end, with the attempt restored: queued at once, or scheduled after a
-- delay. Called by release.release(): for outcomes, for children that died, for claims that were never answered. Never
-- waits: locked rows are left out.
-- Found by primary key, fenced by lease token.
WITH unrun AS MATERIALIZED (
    SELECT job.id, ack.delay_seconds
    FROM unnest(
        %(ids)s::bigint[], %(lease_tokens)s::bigint[], %(delays)s::double precision[]
    ) AS ack (id, lease_token, delay_seconds)
    JOIN pgqueue_jobs AS job USING (id, lease_token)
    FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE pgqueue_jobs AS job
SET status = CASE WHEN unrun.delay_seconds > 0 THEN 'scheduled' ELSE 'queued' END,
    run_at = CASE
        WHEN unrun.delay_seconds > 0 THEN statement_timestamp() + make_interval(secs => unrun.delay_seconds)
        ELSE job.run_at
    END,
    attempts = job.attempts - 1,
    first_started_at = CASE WHEN unrun.delay_seconds > 0 OR job.attempts > 1 THEN job.first_started_at ELSE 'epoch' END,
    lease_token = 0,
    worker_id = 0
FROM unrun
WHERE job.id = unrun.id
RETURNING job.id;
