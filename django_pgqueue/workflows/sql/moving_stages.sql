-- Which stages have members that are still to be opened or removed, or children to end, of one workflow or of any; and of each workflow with
-- blocked stages of which is still to be decided whether they open, the first of those. Called by advance.moving_stages().
-- Locks nothing; leans on pgqueue_stages_moving.
SELECT stage.id, stage.status, COALESCE(stage.killed_by, workflow.ended_by), stage.killed_by IS NOT NULL
FROM pgqueue_stages AS stage
CROSS JOIN LATERAL pgqueue_workflow_of(stage.id) AS workflow
WHERE stage.moves_after IS NOT NULL
  AND (
      %(workflow_id)s::bigint IS NULL
      OR stage.id >= %(workflow_id)s::bigint << 16 AND stage.id < %(workflow_id)s::bigint + 1 << 16
  )
  AND (
      stage.moves_after >= 0
      OR NOT EXISTS (
          SELECT
          FROM pgqueue_stages AS first
          WHERE first.moves_after = -1
            AND first.id >= stage.id >> 16 << 16 AND first.id < stage.id
          OFFSET 0
      )
  )
ORDER BY stage.id
LIMIT 100;
