-- What jobs have died of, the latest first, with the numbers of each: the cause, its latest job, first and last death,
-- how many (10,001: more), the hours they died in, how many in each, and whether causes may be missing. Called by
-- insights.dead_groups. Hops along pgqueue_dead_jobs_cause, and takes those of the latest deaths in any case; locks
-- nothing. A range of one cause is ordered by it too, which with an equal sign it would not be: no other index has that
-- order.
WITH RECURSIVE hops (cause) AS (
    (SELECT job.cause FROM pgqueue_dead_jobs AS job ORDER BY job.cause LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.cause
        FROM pgqueue_dead_jobs AS job
        WHERE job.cause > hops.cause
        ORDER BY job.cause
        LIMIT 1
    )
    FROM hops
    WHERE hops.cause IS NOT NULL
),
hopped AS MATERIALIZED (
    SELECT hops.cause FROM hops WHERE hops.cause IS NOT NULL LIMIT 1001
),
known AS MATERIALIZED (
    SELECT hopped.cause FROM hopped
    UNION
    SELECT latest.cause
    FROM (SELECT job.cause FROM pgqueue_dead_jobs AS job ORDER BY job.died_at DESC, job.id DESC LIMIT 1000) AS latest
),
seen AS MATERIALIZED (
    SELECT known.cause, latest.id, latest.died_at
    FROM known
    CROSS JOIN LATERAL (
        SELECT job.id, job.died_at
        FROM pgqueue_dead_jobs AS job
        WHERE job.cause BETWEEN known.cause AND known.cause
        ORDER BY job.cause, job.died_at DESC, job.id DESC
        LIMIT 1
    ) AS latest
),
chosen AS MATERIALIZED (
    SELECT seen.cause, seen.id, seen.died_at
    FROM seen
    WHERE %(died_at)s::timestamptz IS NULL
       OR (seen.died_at, seen.cause) < (%(died_at)s::timestamptz, %(cause)s::bigint)
    ORDER BY seen.died_at DESC, seen.cause DESC
    LIMIT %(limit)s::bigint
)
SELECT
    chosen.cause,
    chosen.id,
    earliest.died_at,
    chosen.died_at,
    counted.number,
    counted.hours,
    counted.numbers,
    (SELECT count(*) > 1000 FROM hopped)
FROM chosen
CROSS JOIN LATERAL (
    SELECT job.died_at
    FROM pgqueue_dead_jobs AS job
    WHERE job.cause BETWEEN chosen.cause AND chosen.cause
    ORDER BY job.cause DESC, job.died_at, job.id
    LIMIT 1
) AS earliest
CROSS JOIN LATERAL (
    SELECT
        sum(hourly.number)::bigint AS number,
        array_agg(hourly.hour) AS hours,
        array_agg(hourly.number) AS numbers
    FROM (
        SELECT date_bin('1 hour', dead.died_at, 'epoch'::timestamptz) AS hour, count(*) AS number
        FROM (
            SELECT job.died_at
            FROM pgqueue_dead_jobs AS job
            WHERE job.cause BETWEEN chosen.cause AND chosen.cause
            ORDER BY job.cause, job.died_at DESC, job.id DESC
            LIMIT 10001
        ) AS dead
        GROUP BY date_bin('1 hour', dead.died_at, 'epoch'::timestamptz)
    ) AS hourly
) AS counted
ORDER BY chosen.died_at DESC, chosen.cause DESC;
