-- Which open stages wait for people: none of their members lives, and no workflow that these have begun is open, but a
-- member is dead, or such a workflow has failed or was killed; the workflow waits for it. The one definition of stuck, for
-- states, lists, metrics and the doctor. Looks at the stages between two ids, up to a limit; of NULL at all of them. Locks
-- nothing; leans on pgqueue_stages_open, and reads an index entry or two of each stage.
CREATE FUNCTION pgqueue_stuck_stages(from_stage bigint, to_stage bigint, most bigint)
RETURNS SETOF bigint
LANGUAGE plpgsql
STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    WITH looked AS MATERIALIZED (
        SELECT stage.id
        FROM pgqueue_stages AS stage
        WHERE stage.status = 'open' AND stage.killed_by IS NULL AND stage.id >= from_stage AND stage.id < to_stage
        ORDER BY stage.id
        LIMIT most
    )
    SELECT looked.id
    FROM looked
    WHERE (
            EXISTS (SELECT FROM pgqueue_dead_jobs AS dead WHERE dead.stage_id = looked.id OFFSET 0)
            OR EXISTS (
                SELECT
                FROM pgqueue_workflows AS child
                WHERE child.parent_stage_id = looked.id AND (child.status IN ('failed', 'killed')) IS TRUE
                OFFSET 0
            )
        )
      AND NOT EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.stage_id = looked.id OFFSET 0)
      AND NOT EXISTS (
          SELECT
          FROM pgqueue_workflows AS child
          WHERE child.parent_stage_id = looked.id AND (child.status = 'open') IS TRUE
          OFFSET 0
      )
      AND EXISTS (
          SELECT
          FROM pgqueue_workflow_of(looked.id) AS workflow
          WHERE workflow.status = 'open' AND workflow.on_death = 'wait'
      );
END
$$;
