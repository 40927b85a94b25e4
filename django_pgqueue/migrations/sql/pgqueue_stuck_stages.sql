-- Which open stages wait for people: none of their members lives, and no workflow that these have begun is open, but a
-- member is dead, or such a workflow has failed or was killed; the workflow waits for it. The one definition of stuck, for
-- states, lists, metrics and the doctor. Looks at the stages between two ids, up to a limit; of NULL at all of them. Locks
-- nothing; leans on pgqueue_stages_open, and reads an index entry or two of each stage. The workflow of a stage is the first
-- one from its id on, an order that only the primary key has: no statistics can make the planner read another index whole.
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
          FROM (
              SELECT one.id, one.status, one.on_death
              FROM pgqueue_workflows AS one
              WHERE one.id >= looked.id >> 16
              ORDER BY one.id
              LIMIT 1
          ) AS workflow
          WHERE workflow.id = looked.id >> 16 AND workflow.status = 'open' AND workflow.on_death = 'wait'
      );
END
$$;
