-- The first stages of each of these workflows, what each waits for, and whether any stage of the workflow is stuck. Called
-- by insights.workflow_info. Locks nothing; reads the primary key of stages up to the limit for each, and
-- pgqueue_stage_edges_once for each of those stages.
SELECT
    stage.id, stage.name, stage.status, stage.opens_when, stage.is_sealed, stage.moves_after IS NOT NULL, stage.members,
    stage.opened_at, stage.ended_at, stage.killed_by, workflow.is_stuck,
    ARRAY(
        SELECT edge.to_id
        FROM pgqueue_stage_edges AS edge
        WHERE edge.from_id = stage.id
        ORDER BY edge.to_id
        LIMIT %(edges)s::bigint
    ),
    ARRAY(
        SELECT COALESCE(edge.outcome, '')
        FROM pgqueue_stage_edges AS edge
        WHERE edge.from_id = stage.id
        ORDER BY edge.to_id
        LIMIT %(edges)s::bigint
    )
FROM unnest(%(workflow_ids)s::bigint[]) AS asked (id)
CROSS JOIN LATERAL (
    SELECT one.*
    FROM pgqueue_stages AS one
    WHERE one.id >= asked.id << 16 AND one.id < asked.id + 1 << 16
    ORDER BY one.id
    LIMIT %(limit)s::bigint
) AS stage
CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT FROM pgqueue_stuck_stages(asked.id << 16, asked.id + 1 << 16, NULL)) AS is_stuck
    OFFSET 0
) AS workflow
ORDER BY stage.id;
