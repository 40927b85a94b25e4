-- Turn jobs that succeeded, are not kept, and hold their unique key for a while into reserved rows: nothing is left of
-- them but the key, until run_at. Called like finish.sql, and finds its rows in the same way; never waits. expires_at
-- goes too, since a succeeded job cannot expire. Returns the ids, and whether a caller waits.
WITH done AS MATERIALIZED (
    SELECT job.place
    FROM unnest(%(ids)s::bigint[], %(lease_tokens)s::bigint[]) AS ack (id, lease_token)
    CROSS JOIN LATERAL (
        SELECT one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.id = ack.id AND one.lease_token = ack.lease_token
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
)
UPDATE pgqueue_jobs AS job
SET status = 'reserved',
    run_at = statement_timestamp() + make_interval(secs => job.unique_hold_seconds),
    lease_token = 0,
    worker_id = 0,
    concurrency_slot = NULL,
    expires_at = NULL,
    args = '[]',
    kwargs = '{}',
    tags = NULL,
    metadata = '{}',
    progress = NULL,
    errors = '[]'
FROM done
WHERE job.ctid = done.place
RETURNING job.id, job.has_waiters;
