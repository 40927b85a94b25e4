-- Decide whether a stage is over, and what follows from that: stages behind it open or are skipped, and the workflow
-- ends. Called by pgqueue_advance(), and by staff who skip or kill a stage; the caller has locked the workflow. The first
-- thing to do is one of: look, whether an open stage is over; decide, whether a blocked one opens; skip, as if it had
-- succeeded; kill, a blocked one, as if a member had died; go on, with blocked ones of its workflow that were left for
-- later. Stages and edges are changed under that lock alone, so nothing is waited for but members, and of those locked ones
-- are stepped over. Returns what pgqueue_move_members() does; as parent, the stage of another workflow that has waited for
-- this one; and as left, how many stages were left for later.
CREATE FUNCTION pgqueue_settle_stage(of_stage bigint, at_first text)
RETURNS TABLE (kind text, name text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    most CONSTANT integer := 500;  -- stages of one call, a large one for ten more: the others are marked for maintenance
    number integer := 0;
    stages bigint[] := ARRAY[of_stage];  -- to be worked on, one after the other
    actions text[] := ARRAY[at_first];
    this bigint;
    action text;
    stage record;
    lives boolean;
    deaths integer;
    told record;
    behind bigint[];
    parent bigint;
BEGIN
    IF at_first = 'go on' THEN
        stages := ARRAY(
            SELECT one.id
            FROM pgqueue_stages AS one
            WHERE one.moves_after = -1 AND one.status = 'blocked'
              AND one.id >= (of_stage >> 16 << 16) AND one.id < ((of_stage >> 16) + 1 << 16)
            ORDER BY one.id
            LIMIT most
        );
        actions := array_fill('decide'::text, ARRAY[cardinality(stages)]);
        UPDATE pgqueue_stages AS one SET moves_after = NULL WHERE one.id = ANY (stages);
        RETURN QUERY SELECT 'moved', cardinality(stages)::text;
    END IF;
    WHILE cardinality(stages) > 0 LOOP
        number := number + 1;
        IF number > most THEN
            UPDATE pgqueue_stages AS one SET moves_after = -1 WHERE one.id = ANY (stages) AND one.status = 'blocked';
            RETURN QUERY SELECT 'left', cardinality(stages)::text;
            EXIT;
        END IF;
        this := stages[1];
        action := actions[1];
        stages := stages[2:];
        actions := actions[2:];
        SELECT one.status, one.is_sealed, one.opens_when, one.killed_by, workflow.on_death
        INTO stage
        FROM pgqueue_stages AS one
        CROSS JOIN LATERAL pgqueue_workflow_of(one.id) AS workflow
        WHERE one.id = this AND one.status IN ('blocked', 'open') AND workflow.status = 'open';
        CONTINUE WHEN NOT FOUND;

        IF action = 'decide' THEN
            CONTINUE WHEN stage.status = 'open';
            IF stage.opens_when = 'died' AND EXISTS (
                SELECT FROM pgqueue_stage_edges AS edge WHERE edge.to_id = this AND edge.outcome = 'died'
            ) THEN
                action := 'open';
            ELSIF stage.opens_when = 'succeeded' AND EXISTS (
                SELECT FROM pgqueue_stage_edges AS edge WHERE edge.to_id = this AND edge.outcome IN ('died', 'skipped')
            ) THEN
                action := 'skip in vain';
            ELSIF EXISTS (
                SELECT FROM pgqueue_stage_edges AS edge WHERE edge.to_id = this AND edge.outcome IS NULL
            ) THEN
                CONTINUE;
            ELSIF stage.opens_when = 'died' THEN
                action := 'skip in vain';
            ELSE
                action := 'open';
            END IF;
        END IF;

        IF action = 'open' THEN
            UPDATE pgqueue_stages AS one
            SET status = 'open', opened_at = statement_timestamp(), moves_after = 0
            WHERE one.id = this;
            FOR told IN SELECT * FROM pgqueue_move_members(this) LOOP
                RETURN QUERY SELECT told.kind, told.name;
                number := number + CASE WHEN told.kind = 'moved' THEN told.name::integer / 100 ELSE 0 END;
            END LOOP;
            stage.status := 'open';
            action := 'look';  -- it may be empty
        END IF;

        IF action = 'look' THEN
            CONTINUE WHEN stage.status <> 'open' OR NOT stage.is_sealed;
            -- By one snapshot: members that die or are retried meanwhile would be missed by two.
            SELECT
                EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.stage_id = this)
                OR EXISTS (
                    SELECT
                    FROM pgqueue_workflows AS child
                    WHERE child.parent_stage_id = this AND (child.status = 'open') IS TRUE  -- by no index on the status
                ),
                (SELECT count(*) FROM pgqueue_dead_jobs AS dead WHERE dead.stage_id = this)
                + (
                    SELECT count(*)
                    FROM pgqueue_workflows AS child
                    WHERE child.parent_stage_id = this AND (child.status IN ('failed', 'killed')) IS TRUE
                )
            INTO lives, deaths;
            CONTINUE WHEN lives;
            CONTINUE WHEN deaths > 0 AND stage.on_death = 'wait' AND stage.killed_by IS NULL;
            UPDATE pgqueue_stages AS one
            SET status = 'ended', ended_at = statement_timestamp(), moves_after = NULL, died = deaths
            WHERE one.id = this;
        ELSE
            UPDATE pgqueue_stages AS one
            SET status = 'skipped', ended_at = statement_timestamp(), moves_after = 0
            WHERE one.id = this;
            IF stage.status = 'blocked' AND action <> 'kill' THEN  -- the caller kills those of a killed one
                FOR told IN SELECT * FROM pgqueue_move_members(this) LOOP
                    RETURN QUERY SELECT told.kind, told.name;
                    number := number + CASE WHEN told.kind = 'moved' THEN told.name::integer / 100 ELSE 0 END;
                END LOOP;
            END IF;
        END IF;

        UPDATE pgqueue_stage_edges AS edge
        SET outcome = CASE
            WHEN action = 'skip in vain' THEN 'skipped'
            WHEN stage.killed_by IS NOT NULL THEN 'died'
            WHEN action = 'skip' OR deaths = 0 THEN 'succeeded'
            WHEN stage.on_death = 'go_on' AND next.opens_when <> 'died' THEN 'succeeded'
            ELSE 'died'
        END
        FROM pgqueue_stages AS next
        WHERE edge.from_id = this AND edge.outcome IS NULL AND next.id = edge.to_id;
        behind := ARRAY(
            SELECT edge.to_id FROM pgqueue_stage_edges AS edge WHERE edge.from_id = this ORDER BY edge.to_id
        );
        stages := stages || behind;
        actions := actions || array_fill('decide'::text, ARRAY[cardinality(behind)]);

        IF NOT EXISTS (
            SELECT
            FROM pgqueue_stages AS one
            WHERE one.status IN ('blocked', 'open') AND one.id >= (this >> 16 << 16) AND one.id < ((this >> 16) + 1 << 16)
        ) THEN
            UPDATE pgqueue_workflows AS workflow
            SET ended_at = statement_timestamp(),
                status = CASE
                    WHEN EXISTS (
                        SELECT
                        FROM pgqueue_stages AS one
                        WHERE one.id >= (this >> 16 << 16) AND one.id < ((this >> 16) + 1 << 16)
                          AND (
                              one.killed_by IS NOT NULL
                              OR workflow.on_death <> 'go_on' AND one.status = 'ended' AND one.died > 0
                          )
                    )
                    THEN 'failed'
                    ELSE 'succeeded'
                END
            WHERE workflow.id = this >> 16 AND workflow.status = 'open'
            RETURNING workflow.parent_stage_id INTO parent;
            IF parent IS NOT NULL THEN
                RETURN QUERY SELECT 'parent', parent::text;
            END IF;
        END IF;
    END LOOP;
END
$$;
