-- Which open workflows have passed their deadline, the earliest first. Called by advance.late_workflows(). Locks nothing;
-- leans on pgqueue_workflows_deadline.
SELECT workflow.id
FROM pgqueue_workflows AS workflow
WHERE workflow.status = 'open' AND workflow.deadline_at <= statement_timestamp()
ORDER BY workflow.deadline_at
LIMIT 100;
