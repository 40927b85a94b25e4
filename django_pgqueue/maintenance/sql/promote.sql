-- Make due scheduled jobs claimable, or limited where they have a concurrency key and no slot. Called by
-- maintenance.promoter. Takes a bounded slice in order of run_at and steps over locked rows, so any number of workers
-- may try. The IN repeats the predicate of pgqueue_jobs_due, so that it can be used; the = narrows it. Returns one row
-- for each queue, whose key is NULL, and for each concurrency key of jobs that wait. Fair jobs get their turns now.
WITH due AS MATERIALIZED (
    SELECT job.ctid AS place, job.id, job.run_at, job.queue, job.priority, job.fair_key
    FROM pgqueue_jobs AS job
    WHERE job.status IN ('scheduled', 'reserved')
      AND job.status = 'scheduled'
      AND job.run_at <= statement_timestamp()
    ORDER BY job.run_at
    LIMIT 1000
    FOR NO KEY UPDATE SKIP LOCKED
),
fair AS MATERIALIZED (
    SELECT turn.place, turn.run_at
    FROM (
        SELECT
            due.queue,
            due.priority,
            array_agg(due.place ORDER BY due.run_at, due.id) AS places,
            array_agg(due.fair_key ORDER BY due.run_at, due.id) AS keys
        FROM due
        WHERE due.fair_key IS NOT NULL
        GROUP BY due.queue, due.priority
    ) AS line
    CROSS JOIN LATERAL ROWS FROM (
        unnest(line.places),
        pgqueue_turns(line.queue, line.priority, line.keys)
    ) AS turn (place, run_at)
),
placed AS (
    SELECT due.place, due.run_at
    FROM due
    WHERE due.fair_key IS NULL
    UNION ALL
    SELECT fair.place, fair.run_at
    FROM fair
),
promoted AS (
    UPDATE pgqueue_jobs AS job
    SET status = CASE
            WHEN job.concurrency_key IS NOT NULL AND job.concurrency_slot IS NULL THEN 'limited'
            ELSE 'queued'
        END,
        run_at = due.run_at
    FROM placed AS due
    WHERE job.ctid = due.place
    RETURNING job.queue, CASE WHEN job.status = 'limited' THEN job.concurrency_key END AS key
)
SELECT promoted.queue, promoted.key, count(*)
FROM promoted
GROUP BY promoted.queue, promoted.key;
