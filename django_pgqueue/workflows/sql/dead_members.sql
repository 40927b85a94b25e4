-- The next dead members of a workflow, or of one of its stages, by stage and id. Called by members.retry(). Those of
-- stages that were skipped or killed are left out, unless it is asked for that stage alone. Locks nothing; leans on
-- pgqueue_dead_jobs_stage.
SELECT dead.stage_id, dead.id
FROM pgqueue_dead_jobs AS dead
WHERE dead.stage_id >= %(from_stage)s::bigint
  AND dead.stage_id < %(to_stage)s::bigint
  AND (dead.stage_id, dead.id) > (%(after_stage)s::bigint, %(after_id)s::bigint)
  AND (
      %(to_stage)s::bigint = %(from_stage)s::bigint + 1
      OR NOT EXISTS (
          SELECT
          FROM pgqueue_stages AS stage
          WHERE stage.id = dead.stage_id AND (stage.status = 'skipped' OR stage.killed_by IS NOT NULL)
          OFFSET 0
      )
  )
ORDER BY dead.stage_id, dead.id
LIMIT 1000;
