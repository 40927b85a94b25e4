-- Let keys catch up that are behind others without having had more turns: the first 100 jobs of each are moved
-- forward, as far as the first of them. Called by fairness._catch_up() with what fair_key_heads.sql has found: jobs
-- that another worker has moved since are before that head, and stay. Takes a bounded slice and steps over locked rows.
-- Found by pgqueue_jobs_fair (whose IN is repeated). Returns the ids it moved.
WITH due AS MATERIALIZED (
    SELECT job.place, late.lag
    FROM unnest(
        %(queues)s::text[], %(fair_keys)s::text[], %(ranks)s::smallint[], %(run_ats)s::timestamptz[],
        %(lags)s::interval[]
    ) AS late (queue, fair_key, rank, run_at, lag)
    CROSS JOIN LATERAL (
        SELECT one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.queue = late.queue
          AND one.fair_key = late.fair_key
          AND (-one.priority) = late.rank
          AND one.status IN ('queued', 'limited')
          AND one.run_at >= late.run_at
        ORDER BY one.run_at
        LIMIT 100
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
)
UPDATE pgqueue_jobs AS job
SET run_at = job.run_at - due.lag
FROM due
WHERE job.ctid = due.place
RETURNING job.id;
