-- End an open workflow: killed, or failed by its deadline. Called by staff, who have locked it, for it and for those that
-- its members have begun, and by maintenance; where another session holds the lock, it is not ended. Nothing of it opens
-- any more from here on; pgqueue_move_members() finds the members and children of its stages. Returns the id of the
-- workflow, as ended, and the stage that has waited for it, as parent.
CREATE FUNCTION pgqueue_end_workflow(of_workflow bigint, new_status text, by_whom text)
RETURNS TABLE (kind text, name text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    parent bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('pgqueue workflow ' || of_workflow, 0)) THEN
        RETURN;
    END IF;
    UPDATE pgqueue_workflows AS workflow
    SET status = new_status, ended_at = statement_timestamp(), ended_by = by_whom
    WHERE workflow.id = of_workflow AND workflow.status = 'open'
    RETURNING workflow.parent_stage_id INTO parent;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE pgqueue_stages AS stage
    SET status = 'skipped', ended_at = statement_timestamp(), moves_after = 0
    WHERE stage.status IN ('blocked', 'open') AND stage.id >= of_workflow << 16 AND stage.id < of_workflow + 1 << 16;
    RETURN QUERY SELECT 'ended', of_workflow::text;
    IF parent IS NOT NULL THEN
        RETURN QUERY SELECT 'parent', parent::text;
    END IF;
END
$$;
