-- The numbers of workflows and of their stages by the name of the workflow, for metrics: of open ones and of open stages
-- the first by id, of those that ended within an hour the latest, each up to a limit. The names of which there are the most
-- have a row each, and all others one with an empty name. Called by insights.workflow_info. Locks nothing; leans on
-- pgqueue_workflows_status, pgqueue_workflows_ended and pgqueue_stages_open, and reads an index entry or two of each stage.
WITH open_ones AS MATERIALIZED (
    SELECT workflow.id, workflow.name, workflow.begun_at, workflow.deadline_at
    FROM pgqueue_workflows AS workflow
    WHERE workflow.status = 'open'
    ORDER BY workflow.status DESC, workflow.id
    LIMIT %(limit)s::bigint
),
ended_ones AS MATERIALIZED (
    SELECT workflow.name, workflow.status, extract(epoch FROM workflow.ended_at - workflow.begun_at)::float8 AS seconds
    FROM pgqueue_workflows AS workflow
    WHERE workflow.ended_at > statement_timestamp() - INTERVAL '1 hour'
    ORDER BY workflow.ended_at DESC
    LIMIT %(limit)s::bigint
),
open_stages AS MATERIALIZED (
    SELECT
        stage.id,
        NOT stage.is_sealed
        AND stage.opened_at < statement_timestamp() - INTERVAL '1 hour'
        AND NOT EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.stage_id = stage.id OFFSET 0) AS is_unsealed
    FROM pgqueue_stages AS stage
    WHERE stage.status = 'open'
    ORDER BY stage.id
    LIMIT %(limit)s::bigint
),
of_stages AS MATERIALIZED (
    SELECT
        stage.id >> 16 AS workflow_id,
        count(*) AS stages,
        count(stuck.id) AS stuck,
        count(*) FILTER (WHERE stage.is_unsealed) AS unsealed
    FROM open_stages AS stage
    LEFT JOIN pgqueue_stuck_stages(0, 9223372036854775807, %(limit)s::bigint) AS stuck (id) ON stuck.id = stage.id
    GROUP BY 1
),
found AS MATERIALIZED (
    SELECT
        one.name, 'open' AS status, NULL::float8 AS seconds, one.begun_at, one.deadline_at,
        of_stages.stages, of_stages.stuck, of_stages.unsealed
    FROM open_ones AS one
    LEFT JOIN of_stages ON of_stages.workflow_id = one.id
    UNION ALL
    SELECT one.name, one.status, one.seconds, NULL, NULL, NULL, NULL, NULL
    FROM ended_ones AS one
),
named AS (
    SELECT found.name, row_number() OVER (ORDER BY count(*) DESC, found.name) <= %(names)s::bigint AS has_row
    FROM found
    GROUP BY found.name
)
SELECT
    CASE WHEN named.has_row THEN found.name ELSE '' END,
    count(*) FILTER (WHERE found.status = 'open'),
    count(*) FILTER (WHERE found.stuck > 0),
    count(*) FILTER (WHERE found.deadline_at <= statement_timestamp()),
    COALESCE(sum(found.stages), 0)::bigint,
    COALESCE(sum(found.stuck), 0)::bigint,
    COALESCE(sum(found.unsealed), 0)::bigint,
    COALESCE(extract(epoch FROM statement_timestamp() - min(found.begun_at)), 0)::float8,
    count(*) FILTER (WHERE found.status = 'succeeded'),
    count(*) FILTER (WHERE found.status = 'failed'),
    count(*) FILTER (WHERE found.status = 'killed'),
    percentile_cont(0.5) WITHIN GROUP (ORDER BY found.seconds),
    percentile_cont(0.95) WITHIN GROUP (ORDER BY found.seconds),
    %(limit)s::bigint IN (
        (SELECT count(*) FROM open_ones), (SELECT count(*) FROM ended_ones), (SELECT count(*) FROM open_stages)
    )
FROM found
JOIN named ON named.name = found.name
GROUP BY 1
ORDER BY 1;
