-- Which open workflows wait for dead members only, have an open stage that was not sealed for an hour and has no member
-- left, or have passed their deadline by more than a minute. Called by workflows.problems(). Locks nothing; looks at the
-- first thousand open stages, an index entry or two of each, and along pgqueue_workflows_deadline. Returns kind, id and
-- name of the workflow.
WITH stage AS MATERIALIZED (
    SELECT one.id, one.is_sealed, one.opened_at
    FROM pgqueue_stages AS one
    WHERE one.status = 'open'
    ORDER BY one.id
    LIMIT 1000
),
idle AS MATERIALIZED (
    SELECT stage.id, stage.is_sealed, stage.opened_at
    FROM stage
    WHERE NOT EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.stage_id = stage.id)
)
SELECT 'stuck', workflow.id, workflow.name
FROM idle
JOIN pgqueue_workflows AS workflow ON workflow.id = idle.id >> 16
WHERE workflow.on_death = 'wait' AND EXISTS (SELECT FROM pgqueue_dead_jobs AS dead WHERE dead.stage_id = idle.id)
UNION
SELECT 'unsealed', workflow.id, workflow.name
FROM idle
JOIN pgqueue_workflows AS workflow ON workflow.id = idle.id >> 16
WHERE NOT idle.is_sealed AND idle.opened_at < statement_timestamp() - INTERVAL '1 hour'
UNION
(
    SELECT 'overdue', workflow.id, workflow.name
    FROM pgqueue_workflows AS workflow
    WHERE workflow.status = 'open' AND workflow.deadline_at < statement_timestamp() - INTERVAL '1 minute'
    ORDER BY workflow.deadline_at
    LIMIT 100
)
ORDER BY 1, 2;
