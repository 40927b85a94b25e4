-- End an open workflow and those that its members have begun: killed, or failed by its deadline. Called by staff, who
-- wait for callers that are adding members, and by maintenance, which does not: where the lock is held, nothing is
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
    workflows bigint[] := ARRAY[of_workflow];
    this bigint;
    parent bigint;
BEGIN
    WHILE cardinality(workflows) > 0 LOOP
        this := workflows[1];
        workflows := workflows[2:];
        IF waits THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('pgqueue workflow ' || this, 0));
        ELSIF NOT pg_try_advisory_xact_lock(hashtextextended('pgqueue workflow ' || this, 0)) THEN
            CONTINUE;
        END IF;
        UPDATE pgqueue_workflows AS workflow
        SET status = new_status, ended_at = statement_timestamp(), ended_by = by_whom
        WHERE workflow.id = this AND workflow.status = 'open'
        RETURNING workflow.parent_stage_id INTO parent;
        CONTINUE WHEN NOT FOUND;
        UPDATE pgqueue_stages AS stage
        SET status = 'skipped', ended_at = statement_timestamp(), moves_after = 0
        WHERE stage.status IN ('blocked', 'open') AND stage.id >= this << 16 AND stage.id < this + 1 << 16;
        workflows := workflows || ARRAY(
            SELECT child.id
            FROM pgqueue_workflows AS child
            WHERE child.parent_stage_id >= this << 16 AND child.parent_stage_id < this + 1 << 16 AND child.status = 'open'
            ORDER BY child.id
        );
        RETURN QUERY SELECT 'ended', this::text;
        IF parent IS NOT NULL AND this = of_workflow THEN
            RETURN QUERY SELECT 'parent', parent::text;
        END IF;
    END LOOP;
END
$$;
