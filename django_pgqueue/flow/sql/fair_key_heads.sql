-- Heads of the keys that take turns: for each key, in each queue and at each priority, the run_at of its first job,
-- and that of the queue's first job and of its 20th (NULL if it has fewer). Called by fairness.advance_fair_keys(),
-- which goes round all keys in bounded slices: those after the given one. Locks nothing. Walks along pgqueue_jobs_fair
-- from one key to the next, and reads 20 entries of pgqueue_jobs_claim for each queue and priority.
WITH RECURSIVE front (queue, fair_key, rank, run_at, number) AS (
    (
        SELECT job.queue, job.fair_key, -job.priority, job.run_at, 1
        FROM pgqueue_jobs AS job
        WHERE job.fair_key IS NOT NULL
          AND job.status IN ('queued', 'limited')
          AND (job.queue, job.fair_key, (-job.priority)) > (%(queue)s::text, %(fair_key)s::text, %(rank)s::smallint)
        ORDER BY job.queue, job.fair_key, (-job.priority), job.run_at
        LIMIT 1
    )
    UNION ALL
    SELECT next.queue, next.fair_key, next.rank, next.run_at, front.number + 1
    FROM front
    CROSS JOIN LATERAL (
        SELECT job.queue, job.fair_key, -job.priority AS rank, job.run_at
        FROM pgqueue_jobs AS job
        WHERE job.fair_key IS NOT NULL
          AND job.status IN ('queued', 'limited')
          AND (job.queue, job.fair_key, (-job.priority)) > (front.queue, front.fair_key, front.rank)
        ORDER BY job.queue, job.fair_key, (-job.priority), job.run_at
        LIMIT 1
    ) AS next
    WHERE front.number < %(limit)s::integer
),
line AS MATERIALIZED (
    SELECT place.queue, place.rank, min(entry.run_at) AS first, max(entry.run_at) FILTER (WHERE entry.number = 20) AS far
    FROM (SELECT DISTINCT front.queue, front.rank FROM front) AS place
    CROSS JOIN LATERAL (
        SELECT job.run_at, row_number() OVER (ORDER BY (-job.priority), job.run_at, job.id) AS number
        FROM pgqueue_jobs AS job
        WHERE job.queue = place.queue AND job.status = 'queued' AND (-job.priority) = place.rank
        ORDER BY (-job.priority), job.run_at, job.id
        LIMIT 20
    ) AS entry
    GROUP BY place.queue, place.rank
)
SELECT front.queue, front.fair_key, front.rank, front.run_at, line.first, line.far
FROM front
LEFT JOIN line ON line.queue = front.queue AND line.rank = front.rank
ORDER BY front.number;
