-- Concurrency keys for which jobs wait, and the jobs that have their slots; the first 1,000 keys, up to 1,000 jobs of each.
-- A holder that is scheduled keeps its slot while it backs off (strict); one that is queued waits for a worker.
-- Index: pgqueue_jobs_limited, pgqueue_jobs_slot
WITH RECURSIVE keys (key) AS (
    (
        SELECT job.concurrency_key
        FROM pgqueue_jobs AS job
        WHERE job.status = 'limited'
        ORDER BY job.concurrency_key
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT job.concurrency_key
        FROM pgqueue_jobs AS job
        WHERE job.status = 'limited' AND job.concurrency_key > keys.key
        ORDER BY job.concurrency_key
        LIMIT 1
    )
    FROM keys
    WHERE keys.key IS NOT NULL
)
SELECT
    keys.key,
    limited.jobs AS limited,
    date_trunc('second', statement_timestamp() - limited.since) AS oldest,
    slots.taken,
    slots.by
FROM (SELECT keys.key FROM keys WHERE keys.key IS NOT NULL LIMIT 1000) AS keys
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(of_key.run_at) AS since
    FROM (
        SELECT job.run_at
        FROM pgqueue_jobs AS job
        WHERE job.status = 'limited' AND job.concurrency_key = keys.key
        ORDER BY (-job.priority), job.run_at, job.id
        LIMIT 1000
    ) AS of_key
) AS limited
CROSS JOIN LATERAL (
    SELECT
        count(*) || ' of ' || COALESCE(max(job.concurrency_limit), 0) AS taken,
        string_agg(format('%s %s', job.id, job.status), ', ' ORDER BY job.concurrency_slot) AS by
    FROM pgqueue_jobs AS job
    WHERE job.concurrency_key = keys.key AND job.concurrency_slot IS NOT NULL
) AS slots
ORDER BY limited.jobs DESC
LIMIT 20;

--       key      | limited |  oldest  | taken  |         by
-- ---------------+---------+----------+--------+--------------------
--  account_id=17 |       6 | 00:06:00 | 1 of 1 | 81240005 running
--  account_id=18 |       2 | 00:00:20 | 1 of 1 | 81240006 scheduled
