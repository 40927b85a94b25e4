-- Which open stages may be over, or have a death that opens a stage behind them, of the next ones by id.
-- Called by advance.sweep(). Finds what the transaction of an outcome has not: after a crash, a kill or a purge. One that
-- waits for a dead member, for a workflow that a member has begun, or for new members is left out. Locks nothing; reads
-- an entry of pgqueue_jobs_stage for each. Returns one row: the ids, those of them with deaths, the last one that was
-- looked at, and whether there may be more behind it.
WITH looked AS MATERIALIZED (
    SELECT stage.id, stage.is_sealed, stage.killed_by
    FROM pgqueue_stages AS stage
    WHERE stage.status = 'open' AND stage.id > %(after)s::bigint
    ORDER BY stage.id
    LIMIT 1000
),
found AS (
    SELECT
        looked.id,
        looked.is_sealed
            AND NOT EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.stage_id = looked.id)
            AND NOT EXISTS (
                SELECT
                FROM pgqueue_workflows AS child
                WHERE child.parent_stage_id = looked.id AND (child.status = 'open') IS TRUE
            )
            AND (
                NOT dead.has
                OR looked.killed_by IS NOT NULL
                OR EXISTS (
                    SELECT
                    FROM pgqueue_workflow_of(looked.id) AS workflow
                    WHERE workflow.on_death <> 'wait'
                )
            ) AS may_be_over,
        dead.has
            AND EXISTS (
                SELECT
                FROM pgqueue_stage_edges AS edge
                JOIN pgqueue_stages AS next ON next.id = edge.to_id
                WHERE edge.from_id = looked.id AND edge.outcome IS NULL AND next.opens_when = 'died' AND next.status = 'blocked'
            ) AS has_alarm
    FROM looked
    CROSS JOIN LATERAL (
        SELECT
            EXISTS (SELECT FROM pgqueue_dead_jobs AS dead WHERE dead.stage_id = looked.id)
            OR EXISTS (
                SELECT
                FROM pgqueue_workflows AS child
                WHERE child.parent_stage_id = looked.id AND (child.status IN ('failed', 'killed')) IS TRUE
            ) AS has
        OFFSET 0
    ) AS dead
)
SELECT
    COALESCE(array_agg(found.id ORDER BY found.id) FILTER (WHERE found.may_be_over OR found.has_alarm), '{}'),
    COALESCE(array_agg(found.id) FILTER (WHERE found.has_alarm), '{}'),
    COALESCE(max(found.id), 0),
    count(*) = 1000
FROM found;
