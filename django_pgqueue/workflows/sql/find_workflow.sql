-- Find the open workflow that holds a unique key. Called by handle.find_open(). Locks nothing; leans on
-- pgqueue_workflows_unique.
SELECT workflow.id, workflow.name
FROM pgqueue_workflows AS workflow
WHERE workflow.unique_key = %(unique_key)s::text AND workflow.status = 'open';
