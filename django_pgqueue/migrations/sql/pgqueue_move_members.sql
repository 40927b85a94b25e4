-- Open the next thousand members of a stage that is open, or remove those of one that is skipped. Called by
-- pgqueue_settle_stage() for the first ones, and by maintenance for the rest. A member keeps its place behind others of
-- its priority: it is due now. Steps over locked rows, at which the next slice begins. Members of a skipped stage that
-- were open already are left to the caller. Returns the queues and concurrency keys of opened members, as queue and
-- key, and the ids of those that are left, as kill.
CREATE FUNCTION pgqueue_move_members(of_stage bigint)
RETURNS TABLE (kind text, name text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    stage record;
    wanted bigint[];
    locked bigint[];
    others bigint[];
    last_id bigint;
    number integer;
BEGIN
    SELECT one.status, one.moves_after
    INTO stage
    FROM pgqueue_stages AS one
    WHERE one.id = of_stage AND one.moves_after IS NOT NULL
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT
        COALESCE(array_agg(job.id) FILTER (WHERE job.status = 'blocked'), '{}'),
        array_agg(job.id) FILTER (WHERE job.status <> 'blocked' AND job.kill_requested_at IS NULL),
        max(job.id),
        count(*)
    INTO wanted, others, last_id, number
    FROM (
        SELECT one.id, one.status, one.kill_requested_at
        FROM pgqueue_jobs AS one
        WHERE (one.stage_id, one.id) > (of_stage, stage.moves_after)
          AND one.stage_id < of_stage + 1  -- no one value, for which the planner might walk along the primary key
        ORDER BY one.stage_id, one.id
        LIMIT 1000
    ) AS job;
    locked := ARRAY(
        SELECT job.id
        FROM pgqueue_jobs AS job
        WHERE job.id = ANY (wanted) AND job.status = 'blocked'
        ORDER BY job.id
        FOR NO KEY UPDATE SKIP LOCKED
    );
    IF stage.status = 'open' THEN
        RETURN QUERY
        WITH opened AS (
            UPDATE pgqueue_jobs AS job
            SET status = CASE
                    WHEN job.run_at > statement_timestamp() OR job.fair_key IS NOT NULL THEN 'scheduled'  -- promote gives turns
                    WHEN job.concurrency_key IS NOT NULL THEN 'limited'
                    ELSE 'queued'
                END,
                run_at = GREATEST(job.run_at, statement_timestamp())
            WHERE job.id = ANY (locked)
            RETURNING job.queue, job.status, job.concurrency_key
        )
        SELECT DISTINCT
            CASE WHEN opened.status = 'limited' THEN 'key' ELSE 'queue' END,
            CASE WHEN opened.status = 'limited' THEN opened.concurrency_key ELSE opened.queue END
        FROM opened
        WHERE opened.status IN ('queued', 'limited');
    ELSE
        DELETE FROM pgqueue_jobs AS job WHERE job.id = ANY (locked);
        RETURN QUERY SELECT 'kill', one.id::text FROM unnest(others) AS one (id);
    END IF;
    UPDATE pgqueue_stages AS one
    SET moves_after = CASE
        WHEN cardinality(locked) < cardinality(wanted)
        THEN (SELECT min(missed.id) - 1 FROM unnest(wanted) AS missed (id) WHERE missed.id <> ALL (locked))
        WHEN number = 1000 THEN last_id
    END
    WHERE one.id = of_stage;
END
$$;
