-- A stage of a workflow by its name, or by its id. Called by members.find_stage(). Locks nothing; found by primary key.
SELECT stage.id, stage.name, stage.status, stage.is_sealed, stage.killed_by IS NOT NULL, workflow.status,
    workflow.keeps_calls, stage.previous::text
FROM pgqueue_stages AS stage
CROSS JOIN LATERAL pgqueue_workflow_of(stage.id) AS workflow
WHERE stage.id >= %(workflow_id)s::bigint << 16
  AND stage.id < %(workflow_id)s::bigint + 1 << 16
  AND (stage.id = %(id)s::bigint OR stage.name = %(name)s::text);
