-- Remove workflows that ended before the given days, with their stages: after their members, alive or dead, and after
-- the results of those and the calls that were kept; a child that has failed stays as long as a stage of its parent waits for
-- it. Called by pruner.delete_slice(). Takes a bounded slice from the old end of pgqueue_workflows_ended, and steps over
-- locked rows. Returns their ids.
WITH old AS MATERIALIZED (
    SELECT workflow.id
    FROM pgqueue_workflows AS workflow
    WHERE workflow.ended_at < statement_timestamp() - make_interval(days => %(days)s::integer)
      AND NOT EXISTS (
          SELECT
          FROM pgqueue_jobs AS job
          WHERE job.stage_id >= workflow.id << 16 AND job.stage_id < workflow.id + 1 << 16
      )
      AND NOT EXISTS (
          SELECT
          FROM pgqueue_dead_jobs AS dead
          WHERE dead.stage_id >= workflow.id << 16 AND dead.stage_id < workflow.id + 1 << 16
      )
      AND NOT EXISTS (
          SELECT
          FROM pgqueue_stage_results AS collected
          WHERE collected.stage_id >= workflow.id << 16 AND collected.stage_id < workflow.id + 1 << 16
      )
      AND NOT EXISTS (
          SELECT
          FROM pgqueue_kept_calls AS kept
          WHERE kept.stage_id >= workflow.id << 16 AND kept.stage_id < workflow.id + 1 << 16
      )
      AND NOT EXISTS (
          SELECT
          FROM pgqueue_stages AS parent
          WHERE parent.id = workflow.parent_stage_id AND parent.status = 'open' AND workflow.status IN ('failed', 'killed')
      )
    ORDER BY workflow.ended_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
),
stages AS MATERIALIZED (
    SELECT stage.id
    FROM old
    CROSS JOIN LATERAL (
        SELECT one.id
        FROM pgqueue_stages AS one
        WHERE one.id >= old.id << 16 AND one.id < old.id + 1 << 16
        OFFSET 0
    ) AS stage
),
without_edges AS (
    DELETE FROM pgqueue_stage_edges AS edge WHERE edge.from_id = ANY (ARRAY(SELECT stages.id FROM stages))
),
without_additions AS (
    DELETE FROM pgqueue_stage_additions AS addition WHERE addition.stage_id = ANY (ARRAY(SELECT stages.id FROM stages))
),
without_stages AS (
    DELETE FROM pgqueue_stages AS stage WHERE stage.id = ANY (ARRAY(SELECT stages.id FROM stages))
)
DELETE FROM pgqueue_workflows AS workflow
WHERE workflow.id = ANY (ARRAY(SELECT old.id FROM old))
RETURNING workflow.id;
