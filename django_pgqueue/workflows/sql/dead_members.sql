-- The next dead members of a workflow, by stage and id. Called by members.retry(). Locks nothing; leans on
-- pgqueue_dead_jobs_stage.
SELECT dead.stage_id, dead.id
FROM pgqueue_dead_jobs AS dead
WHERE dead.stage_id >= %(from_stage)s::bigint
  AND dead.stage_id < %(to_stage)s::bigint
  AND (dead.stage_id, dead.id) > (%(after_stage)s::bigint, %(after_id)s::bigint)
ORDER BY dead.stage_id, dead.id
LIMIT 1000;
