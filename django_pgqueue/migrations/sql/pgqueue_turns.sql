-- Return the run_at of jobs with these fair keys, in the order in which they are given. Called by enqueue_keyed.sql and
-- promote.sql. A function, because it has planner settings of its own: enqueueing runs on the caller's connection, and
-- statistics that an empty queue has left behind would have all jobs read and sorted.
CREATE FUNCTION pgqueue_turns(of_queue text, of_priority smallint, fair_keys text[])
RETURNS SETOF timestamptz
LANGUAGE plpgsql
STABLE
SET enable_seqscan = off
SET jit = off
SET enable_bitmapscan = off
SET enable_sort = off
SET enable_hashjoin = on
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    head timestamptz;
BEGIN
    IF array_remove(fair_keys, NULL) = '{}' THEN
        RETURN;
    END IF;
    -- That of the head of the queue, but not later than now. Where workers have noted one, there are only old entries of
    -- the index before it.
    head := LEAST(statement_timestamp(), (
        SELECT job.run_at
        FROM pgqueue_jobs AS job
        WHERE job.queue = of_queue
          AND job.status = 'queued'
          AND (-job.priority) = -of_priority
          AND job.run_at >= COALESCE((
              SELECT noted.run_at
              FROM pgqueue_queue_heads AS noted
              WHERE noted.queue = of_queue AND noted.priority = of_priority
          ), 'epoch')
        ORDER BY (-job.priority), job.run_at, job.id
        LIMIT 1
    ));
    -- One turn after the last job of the key, unless that is before the head; then one turn after the other. Callers that
    -- enqueue for one key at the same time do not see each other and give the same turns. Where the last jobs of the key
    -- share turns, all begin at random, the further apart the more jobs share one.
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT
            one.fair_key,
            one.position,
            row_number() OVER (PARTITION BY one.fair_key ORDER BY one.position) - 1 AS turn
        FROM unnest(fair_keys) WITH ORDINALITY AS one (fair_key, position)
    ),
    first AS MATERIALIZED (
        SELECT
            key.fair_key,
            COALESCE(
                last.run_at + INTERVAL '1 microsecond' + LEAST(
                    INTERVAL '1 microsecond' * floor(random() * key.jobs * 2 * last.excess),
                    GREATEST(statement_timestamp() - last.run_at, INTERVAL '0')
                ),
                head
            ) AS run_at
        FROM (SELECT given.fair_key, count(*) AS jobs FROM given GROUP BY given.fair_key) AS key
        CROSS JOIN LATERAL (
            SELECT
                max(late.run_at) AS run_at,
                GREATEST(count(*) / (extract(epoch FROM max(late.run_at) - min(late.run_at)) * 1e6 + 1) - 1, 0) AS excess
            FROM (
                SELECT job.run_at
                FROM pgqueue_jobs AS job
                WHERE job.queue = of_queue
                  AND job.fair_key = key.fair_key
                  AND (-job.priority) = -of_priority
                  AND job.run_at >= head
                  AND job.status IN ('queued', 'limited')
                ORDER BY job.run_at DESC
                LIMIT 32
            ) AS late
        ) AS last
    )
    SELECT first.run_at + given.turn * INTERVAL '1 microsecond'
    FROM given
    LEFT JOIN first ON first.fair_key = given.fair_key
    ORDER BY given.position;
END
$$;
