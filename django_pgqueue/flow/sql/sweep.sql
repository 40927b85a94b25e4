-- Which concurrency keys have both a limited job and room for it, of the next keys in alphabetical order. Called by
-- flow.concurrency. Walks along pgqueue_jobs_limited from one key to the next, looks at its first job,
-- and counts its entries in pgqueue_jobs_slot; locks nothing. Returns one row: those keys, the last key that was looked
-- at, and whether there may be more behind it.
WITH RECURSIVE key (name, number) AS (
    (
        SELECT job.concurrency_key, 1
        FROM pgqueue_jobs AS job
        WHERE job.status = 'limited' AND job.concurrency_key > %(after)s::text
        ORDER BY job.concurrency_key, (-job.priority), job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT next.name, key.number + 1
    FROM key
    CROSS JOIN LATERAL (
        SELECT job.concurrency_key AS name
        FROM pgqueue_jobs AS job
        WHERE job.status = 'limited' AND job.concurrency_key > key.name
        ORDER BY job.concurrency_key, (-job.priority), job.run_at, job.id
        LIMIT 1
    ) AS next
    WHERE key.number < %(limit)s::integer
)
SELECT
    COALESCE(array_agg(key.name) FILTER (WHERE has.room), '{}'),
    COALESCE(max(key.name), ''),
    count(*) = %(limit)s::integer
FROM key
CROSS JOIN LATERAL (
    SELECT COALESCE(
        (
            SELECT job.concurrency_limit
            FROM pgqueue_jobs AS job
            WHERE job.status = 'limited' AND job.concurrency_key = key.name AND job.run_at <= statement_timestamp()
            ORDER BY job.concurrency_key, (-job.priority), job.run_at, job.id
            LIMIT 1
        ) > (
            SELECT count(*)
            FROM pgqueue_jobs AS job
            WHERE job.concurrency_key = key.name AND job.concurrency_slot IS NOT NULL
        ),
        false
    ) AS room
) AS has;
