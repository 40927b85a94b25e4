-- The workflow of a stage, whose id is in that of the stage: the first one from its id on. That order is only in the
-- primary key, so no statistics can make the planner read another index whole, as it may for a plain equality where it
-- expects no rows: then all indexes cost the same. Called by statements that look at many stages; it becomes a part of
-- them. Locks nothing.
CREATE FUNCTION pgqueue_workflow_of(stage_id bigint)
RETURNS SETOF pgqueue_workflows
LANGUAGE sql
STABLE
AS $$
SELECT workflow.*
FROM (SELECT one.* FROM pgqueue_workflows AS one WHERE one.id >= stage_id >> 16 ORDER BY one.id LIMIT 1) AS workflow
WHERE workflow.id = stage_id >> 16
$$;
