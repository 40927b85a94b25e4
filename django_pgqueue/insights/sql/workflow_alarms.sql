-- How many open workflows are stuck, among the first ones, and how many have passed their deadline; each up to a limit.
-- Called by insights.workflow_info. Locks nothing; looks at the first 5,000 open stages, and reads up to the limit from
-- pgqueue_workflows_deadline.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT DISTINCT stuck.id >> 16
            FROM pgqueue_stuck_stages(0, 9223372036854775807, 5000) AS stuck (id)
            LIMIT %(limit)s::bigint
        ) AS workflow
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pgqueue_workflows AS workflow
            WHERE workflow.status = 'open' AND workflow.deadline_at <= statement_timestamp()
            LIMIT %(limit)s::bigint
        ) AS overdue
    );
