-- The stages of one workflow, in their order, with the numbers of their members. Called by handle.state_of(). Locks
-- nothing; counts along pgqueue_jobs_stage and pgqueue_dead_jobs_stage. Returns the columns of handle.StageState.
SELECT
    stage.id, stage.name, stage.status, stage.opens_when, stage.is_sealed,
    stage.members + COALESCE((
        SELECT sum(addition.members)
        FROM pgqueue_stage_additions AS addition
        WHERE addition.stage_id = stage.id
    ), 0)::integer,
    (SELECT count(*) FROM pgqueue_jobs AS job WHERE job.stage_id = stage.id),
    (SELECT count(*) FROM pgqueue_dead_jobs AS dead WHERE dead.stage_id = stage.id),
    stage.opened_at, stage.ended_at, stage.killed_by, stage.rerun_by, stuck.id IS NOT NULL,
    ARRAY(SELECT edge.from_id FROM pgqueue_stage_edges AS edge WHERE edge.to_id = stage.id ORDER BY edge.from_id)
FROM pgqueue_stages AS stage
LEFT JOIN pgqueue_stuck_stages(%(workflow_id)s::bigint << 16, %(workflow_id)s::bigint + 1 << 16, NULL) AS stuck (id)
    ON stuck.id = stage.id
WHERE stage.id >= %(workflow_id)s::bigint << 16 AND stage.id < %(workflow_id)s::bigint + 1 << 16
ORDER BY stage.id;
