-- Make stages blocked again, as if their workflow had just begun, and open that. Called by rerun.rerun(), which has
-- locked the workflow and found none of their members alive. Removes their results, their dead and blocked members, and
-- the calls that members of these stages have added; children that have ended are no children any more. Waits for locked
-- rows. Returns the id of the workflow.
WITH without_results AS (
    DELETE FROM pgqueue_stage_results AS collected WHERE collected.stage_id = ANY (%(ids)s::bigint[])
),
without_dead AS (
    DELETE FROM pgqueue_dead_jobs AS dead WHERE dead.stage_id = ANY (%(ids)s::bigint[])
),
without_blocked AS (
    DELETE FROM pgqueue_jobs AS job WHERE job.stage_id = ANY (%(ids)s::bigint[]) AND job.status = 'blocked'
),
without_additions AS (
    DELETE FROM pgqueue_stage_additions AS addition WHERE addition.stage_id = ANY (%(ids)s::bigint[])
),
without_calls AS (
    DELETE FROM pgqueue_kept_calls AS kept
    WHERE kept.stage_id = ANY (%(ids)s::bigint[]) AND kept.by_stage_id = ANY (%(ids)s::bigint[])
),
edges AS (
    UPDATE pgqueue_stage_edges AS edge
    SET outcome = NULL
    WHERE edge.from_id = ANY (%(ids)s::bigint[])
),
stages AS (
    UPDATE pgqueue_stages AS stage
    SET status = 'blocked',
        opened_at = NULL,
        ended_at = NULL,
        moves_after = NULL,
        killed_by = NULL,
        died = 0,
        rerun_by = %(by)s::text,
        members = (
            SELECT count(*)
            FROM pgqueue_kept_calls AS kept
            WHERE kept.stage_id = stage.id
              AND (kept.by_stage_id IS NULL OR kept.by_stage_id <> ALL (%(ids)s::bigint[]))
        )
    WHERE stage.id = ANY (%(ids)s::bigint[])
),
children AS (
    UPDATE pgqueue_workflows AS child
    SET parent_stage_id = NULL
    WHERE child.parent_stage_id = ANY (%(ids)s::bigint[])
)
UPDATE pgqueue_workflows AS workflow
SET status = 'open',
    ended_at = NULL,
    ended_by = '',
    parent_stage_id = (
        SELECT parent.id
        FROM pgqueue_stages AS parent
        WHERE parent.id = workflow.parent_stage_id AND parent.status IN ('blocked', 'open') AND parent.killed_by IS NULL
    ),
    deadline_at = CASE
        WHEN workflow.deadline_at > statement_timestamp() THEN workflow.deadline_at
        ELSE statement_timestamp() + (workflow.deadline_at - workflow.begun_at)
    END
WHERE workflow.id = %(workflow_id)s::bigint
RETURNING workflow.id;
