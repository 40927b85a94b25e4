-- Open the next thousand members of a stage that is open, or remove those of one that is skipped. Called by
-- pgqueue_settle_stage() for the first ones, and by maintenance for the rest. A member keeps its place behind others of
-- its priority: it is due now. Steps over locked rows; behind the last slice it begins again with those. Members of a
-- skipped stage that were open already are left to the caller, and so are all of one that was killed, and the open
-- workflows that members of both have begun. Of a stage that pgqueue_settle_stage() has marked, as it had decided about
-- enough others, goes on with that. Returns the queues and concurrency keys of opened members, as queue and key, the ids
-- of members that are left, as kill, and of up to a hundred workflows, as child, and the number of members that were
-- moved, as moved.
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
    places tid[];
    last_id bigint;
    number integer;
    found_queues text[];
    found_keys text[];
    others bigint[] := '{}';
    children bigint[] := '{}';
    before jsonb;
BEGIN
    SELECT one.status, one.moves_after, one.previous, one.killed_by
    INTO stage
    FROM pgqueue_stages AS one
    WHERE one.id = of_stage AND one.moves_after IS NOT NULL
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF stage.moves_after = -1 THEN
        IF pg_try_advisory_xact_lock(hashtextextended('pgqueue workflow ' || (of_stage >> 16), 0)) THEN
            RETURN QUERY SELECT * FROM pgqueue_settle_stage(of_stage, 'go on');
        END IF;
        RETURN;
    END IF;
    IF stage.killed_by IS NOT NULL OR stage.status = 'skipped' THEN
        children := ARRAY(
            SELECT child.id
            FROM pgqueue_workflows AS child
            WHERE child.parent_stage_id = of_stage AND (child.status = 'open') IS TRUE  -- by no index on the status
            LIMIT 100
        );
        RETURN QUERY SELECT 'child', one.id::text FROM unnest(children) AS one (id);
    END IF;
    IF stage.killed_by IS NOT NULL THEN
        others := ARRAY(
            SELECT one.id
            FROM pgqueue_jobs AS one
            WHERE one.stage_id = of_stage AND one.kill_requested_at IS NULL
            LIMIT 1000
        );
        RETURN QUERY SELECT 'kill', one.id::text FROM unnest(others) AS one (id);
        UPDATE pgqueue_stages AS one
        SET moves_after = CASE WHEN others <> '{}' OR children <> '{}' THEN 0 END
        WHERE one.id = of_stage;
        RETURN;
    END IF;
    -- No one value of stage_id, for which the planner might walk along the primary key.
    SELECT COALESCE(array_agg(job.place), '{}'), max(job.id), count(*)
    INTO places, last_id, number
    FROM (
        SELECT one.ctid AS place, one.id
        FROM pgqueue_jobs AS one
        WHERE (one.stage_id, one.id) > (of_stage, stage.moves_after)
          AND one.stage_id < of_stage + 1
          AND one.status = 'blocked'
        ORDER BY one.stage_id, one.id
        LIMIT 1000
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job;
    IF stage.status = 'open' AND stage.previous IS NOT NULL THEN
        -- One of them takes the result of the member before, where null stands for it; others were added to its stage.
        before := COALESCE((
            SELECT collected.result
            FROM pgqueue_stage_edges AS edge
            JOIN pgqueue_stage_results AS collected ON collected.stage_id = edge.from_id
            WHERE edge.to_id = of_stage
            ORDER BY collected.stage_id, collected.job_id
            LIMIT 1
        ), 'null');
        WITH filled AS (
            UPDATE pgqueue_jobs AS job
            SET args = COALESCE((
                    SELECT jsonb_agg(
                        CASE
                            WHEN arg.value = 'null' AND stage.previous -> 'args' @> to_jsonb(arg.place - 1) THEN before
                            ELSE arg.value
                        END
                        ORDER BY arg.place
                    )
                    FROM jsonb_array_elements(job.args) WITH ORDINALITY AS arg (value, place)
                ), '[]'),
                kwargs = job.kwargs || COALESCE((
                    SELECT jsonb_object_agg(arg.name, before)
                    FROM jsonb_array_elements_text(stage.previous -> 'kwargs') AS arg (name)
                    WHERE job.kwargs -> arg.name = 'null'
                ), '{}')
            WHERE job.ctid = ANY (places)
            RETURNING job.ctid AS place
        )
        SELECT COALESCE(array_agg(filled.place), '{}')
        INTO places
        FROM filled;
    END IF;
    IF stage.status = 'open' THEN
        WITH opened AS (
            UPDATE pgqueue_jobs AS job
            SET status = CASE
                    WHEN job.run_at > statement_timestamp() OR job.fair_key IS NOT NULL THEN 'scheduled'  -- promote gives turns
                    WHEN job.concurrency_key IS NOT NULL THEN 'limited'
                    ELSE 'queued'
                END,
                run_at = GREATEST(job.run_at, statement_timestamp())
            WHERE job.ctid = ANY (places)
            RETURNING job.queue, job.status, job.concurrency_key
        )
        SELECT
            array_agg(DISTINCT opened.queue) FILTER (WHERE opened.status = 'queued'),
            array_agg(DISTINCT opened.concurrency_key) FILTER (WHERE opened.status = 'limited')
        INTO found_queues, found_keys
        FROM opened;
        RETURN QUERY SELECT 'queue', one.queue FROM unnest(found_queues) AS one (queue);
        RETURN QUERY SELECT 'key', one.key FROM unnest(found_keys) AS one (key);
    ELSE
        DELETE FROM pgqueue_jobs AS job WHERE job.ctid = ANY (places);
        IF number < 1000 THEN
            others := ARRAY(
                SELECT one.id
                FROM pgqueue_jobs AS one
                WHERE one.stage_id = of_stage AND one.status <> 'blocked' AND one.kill_requested_at IS NULL
                LIMIT 1000
            );
            RETURN QUERY SELECT 'kill', one.id::text FROM unnest(others) AS one (id);
        END IF;
    END IF;
    UPDATE pgqueue_stages AS one
    SET moves_after = CASE
        WHEN number = 1000 THEN last_id
        WHEN others <> '{}' OR children <> '{}' THEN 0
        ELSE (
            SELECT min(missed.id) - 1
            FROM pgqueue_jobs AS missed
            WHERE missed.stage_id = of_stage AND missed.status = 'blocked'
        )
    END
    WHERE one.id = of_stage;
    IF number > 0 THEN
        RETURN QUERY SELECT 'moved', number::text;
    END IF;
END
$$;
