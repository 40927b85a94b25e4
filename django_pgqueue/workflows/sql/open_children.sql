-- The open workflows that members of a stage have begun. Called by members.skip(), which has locked the workflow of the
-- stage. Locks nothing; leans on pgqueue_workflows_parent.
SELECT child.id
FROM pgqueue_workflows AS child
WHERE child.parent_stage_id = %(stage_id)s::bigint AND (child.status = 'open') IS TRUE
ORDER BY child.id;
