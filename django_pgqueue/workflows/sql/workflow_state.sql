-- The state of one workflow. Called by handle.state_of(). Locks nothing; found by primary key. Returns the columns of
-- handle.WorkflowState but for its stages.
SELECT
    workflow.id, workflow.name, workflow.status, workflow.on_death, workflow.unique_key, workflow.begun_at,
    workflow.ended_at, workflow.deadline_at, workflow.ended_by, workflow.parent_stage_id, workflow.context::text
FROM pgqueue_workflows AS workflow
WHERE workflow.id = %(id)s::bigint;
