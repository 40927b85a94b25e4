-- Let in the next jobs of the concurrency keys that try_lock.sql has just locked: limited becomes queued, with a slot.
-- Called by concurrency.send(). Steps over rows that others hold, unless the first job of the key is strict: then none
-- passes those. One edited between snapshot and lock is left for the next time. Reads the key's entries in
-- pgqueue_jobs_slot and the first ones in pgqueue_jobs_limited. Returns the queues that have jobs to claim.
WITH key AS MATERIALIZED (
    SELECT
        locked.name,
        cardinality(used.slots) AS used,
        head.concurrency_limit - cardinality(used.slots) AS room,
        CASE
            WHEN head.concurrency_strict
            THEN ARRAY(
                SELECT one.ctid
                FROM pgqueue_jobs AS one
                WHERE one.concurrency_key = locked.name AND one.status = 'limited' AND one.run_at <= statement_timestamp()
                ORDER BY one.concurrency_key, (-one.priority), one.run_at, one.id
                LIMIT head.concurrency_limit - cardinality(used.slots)
            )
        END AS order_of_all,
        CASE
            WHEN cardinality(used.slots) > 0
            THEN ARRAY(SELECT generate_series(1, head.concurrency_limit) EXCEPT SELECT unnest(used.slots) ORDER BY 1)
        END AS free
    FROM jsonb_array_elements_text(current_setting('pgqueue.admitting')::jsonb) AS locked (name)
    CROSS JOIN LATERAL (
        SELECT one.concurrency_limit, one.concurrency_strict
        FROM pgqueue_jobs AS one
        WHERE one.concurrency_key = locked.name AND one.status = 'limited' AND one.run_at <= statement_timestamp()
        ORDER BY one.concurrency_key, (-one.priority), one.run_at, one.id
        LIMIT 1  -- with LATERAL, no statistics can turn this into a scan of the table
    ) AS head
    CROSS JOIN LATERAL (
        SELECT ARRAY(
            SELECT one.concurrency_slot
            FROM pgqueue_jobs AS one
            WHERE one.concurrency_key = locked.name AND one.concurrency_slot IS NOT NULL
        ) AS slots
        OFFSET 0  -- once for each key, not at each mention
    ) AS used
    WHERE head.concurrency_limit > cardinality(used.slots)
),
-- As many as the first one's limit leaves room for, and none behind one that finds no room by its own limit, or, in a
-- strict order, behind one that was stepped over.
best AS MATERIALIZED (
    SELECT
        job.place,
        CASE WHEN key.used = 0 THEN job.turn ELSE key.free[job.turn] END AS slot,
        bool_and(
            key.used + job.turn <= job.concurrency_limit AND COALESCE(key.order_of_all[job.turn] = job.place, true)
        ) OVER (PARTITION BY key.name ORDER BY job.turn) AS finds_room
    FROM key
    CROSS JOIN LATERAL (
        SELECT one.place, one.concurrency_limit, row_number() OVER (ORDER BY one.rank, one.run_at, one.id) AS turn
        FROM (
            SELECT one.ctid AS place, one.concurrency_limit, -one.priority AS rank, one.run_at, one.id
            FROM pgqueue_jobs AS one
            WHERE one.concurrency_key = key.name AND one.status = 'limited' AND one.run_at <= statement_timestamp()
            ORDER BY one.concurrency_key, (-one.priority), one.run_at, one.id
            LIMIT key.room
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS one
    ) AS job
),
admitted AS (
    UPDATE pgqueue_jobs AS job
    SET status = 'queued',
        concurrency_slot = best.slot
    FROM best
    WHERE job.ctid = best.place AND best.finds_room
    RETURNING job.queue
)
SELECT DISTINCT admitted.queue
FROM admitted;
