-- End an open workflow and those that its members have begun: killed, or failed by its deadline. Called by staff, who
-- wait for callers that are adding members, and by maintenance, which does not: where the lock of any is held, nothing is
-- ended. Nothing opens any more from here on; maintenance removes blocked members and kills the others. Returns the ids
-- of the workflows that were ended, as ended, and the stage that has waited for the first, as parent.
CREATE FUNCTION pgqueue_end_workflow(of_workflow bigint, new_status text, by_whom text, waits boolean)
RETURNS TABLE (kind text, name text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    chosen bigint[] := ARRAY[of_workflow];
    place integer := 1;
    this bigint;
    parent bigint;
BEGIN
    -- Each before its children are looked for: those that are being begun hold its lock.
    WHILE place <= cardinality(chosen) LOOP
        this := chosen[place];
        place := place + 1;
        IF waits THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('pgqueue workflow ' || this, 0));
        ELSIF NOT pg_try_advisory_xact_lock(hashtextextended('pgqueue workflow ' || this, 0)) THEN
            RETURN;
        END IF;
        chosen := chosen || ARRAY(
            SELECT child.id
            FROM pgqueue_workflows AS child
            WHERE child.parent_stage_id >= this << 16
              AND child.parent_stage_id < this + 1 << 16
              AND (child.status = 'open') IS TRUE  -- by no index on the status
            ORDER BY child.id
        );
    END LOOP;
    FOREACH this IN ARRAY chosen LOOP
        UPDATE pgqueue_workflows AS workflow
        SET status = new_status, ended_at = statement_timestamp(), ended_by = by_whom
        WHERE workflow.id = this AND workflow.status = 'open'
        RETURNING workflow.parent_stage_id INTO parent;
        IF NOT FOUND THEN
            EXIT WHEN this = of_workflow;  -- it is over, and waits for none of its children
            CONTINUE;
        END IF;
        UPDATE pgqueue_stages AS stage
        SET status = 'skipped', ended_at = statement_timestamp(), moves_after = 0
        WHERE stage.status IN ('blocked', 'open') AND stage.id >= this << 16 AND stage.id < this + 1 << 16;
        RETURN QUERY SELECT 'ended', this::text;
        IF parent IS NOT NULL AND this = of_workflow THEN
            RETURN QUERY SELECT 'parent', parent::text;
        END IF;
    END LOOP;
END
$$;
