-- Find the open workflow that holds a unique key. Called by handle.find_open(). Locks nothing; leans on
-- pgqueue_workflows_unique. Returns its id and name, and the stage of another workflow that waits for it.
SELECT workflow.id, workflow.name, workflow.parent_stage_id
FROM pgqueue_workflows AS workflow
WHERE workflow.unique_key = %(unique_key)s::text AND workflow.status = 'open';
