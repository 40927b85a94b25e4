-- Remove results that stages have collected, of workflows that ended before the given days and have no members left.
-- Called by pruner.delete_slice(), before the workflows themselves. Takes a bounded slice, and steps over locked rows.
-- Leans on pgqueue_workflows_ended and pgqueue_stage_results_stage. Returns the ids of the members.
DELETE FROM pgqueue_stage_results
WHERE ctid = ANY (ARRAY(
    SELECT one.place
    FROM pgqueue_workflows AS workflow
    CROSS JOIN LATERAL (
        SELECT collected.ctid AS place
        FROM pgqueue_stage_results AS collected
        WHERE collected.stage_id >= workflow.id << 16 AND collected.stage_id < workflow.id + 1 << 16
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS one
    WHERE workflow.ended_at < statement_timestamp() - make_interval(days => %(days)s::integer)
))
RETURNING job_id;
