-- Which open workflows are stuck, have an open stage that was not sealed for an hour and has no member left, or have passed
-- their deadline by more than a minute. Called by workflows.problems(). Locks nothing; looks at the first thousand open
-- stages, an index entry or two of each, and along pgqueue_workflows_deadline. Returns kind, id and name of the workflow.
SELECT 'stuck', workflow.id, workflow.name
FROM pgqueue_stuck_stages(0, 9223372036854775807, 1000) AS stuck (id)
CROSS JOIN LATERAL pgqueue_workflow_of(stuck.id) AS workflow
UNION
SELECT 'unsealed', workflow.id, workflow.name
FROM (
    SELECT one.id, one.is_sealed, one.opened_at
    FROM pgqueue_stages AS one
    WHERE one.status = 'open'
    ORDER BY one.id
    LIMIT 1000
) AS stage
CROSS JOIN LATERAL pgqueue_workflow_of(stage.id) AS workflow
WHERE NOT stage.is_sealed
  AND stage.opened_at < statement_timestamp() - INTERVAL '1 hour'
  AND NOT EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.stage_id = stage.id OFFSET 0)
UNION
(
    SELECT 'overdue', workflow.id, workflow.name
    FROM pgqueue_workflows AS workflow
    WHERE workflow.status = 'open' AND workflow.deadline_at < statement_timestamp() - INTERVAL '1 minute'
    ORDER BY workflow.deadline_at
    LIMIT 100
)
ORDER BY 1, 2;
