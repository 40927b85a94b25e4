-- How many open workflows wait for dead members or for workflows that have failed, among those that began first, and
-- how many have passed their deadline; each up to a limit. Called by insights.workflow_info. Locks nothing; reads up to
-- 5,000 entries of pgqueue_workflows_status, and an entry of pgqueue_dead_jobs_stage for each.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM (
                SELECT workflow.id, workflow.on_death
                FROM pgqueue_workflows AS workflow
                WHERE workflow.status = 'open'
                ORDER BY workflow.status DESC, workflow.id
                LIMIT 5000
            ) AS first
            WHERE first.on_death = 'wait'
              AND (
                  EXISTS (
                      SELECT
                      FROM pgqueue_dead_jobs AS dead
                      WHERE dead.stage_id >= first.id << 16 AND dead.stage_id < first.id + 1 << 16
                      OFFSET 0
                  )
                  OR EXISTS (
                      SELECT
                      FROM pgqueue_workflows AS child
                      WHERE child.parent_stage_id >= first.id << 16
                        AND child.parent_stage_id < first.id + 1 << 16
                        AND child.status IN ('failed', 'killed')
                      OFFSET 0
                  )
              )
            LIMIT %(limit)s::bigint
        ) AS stuck
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
