-- Remove results that stages have collected, of workflows that ended before the given days. Called by
-- pruner.delete_slice(), before the workflows themselves. Takes a bounded slice, and steps over locked rows, also those of a
-- workflow that is just rerun. Leans on pgqueue_workflows_ended and pgqueue_stage_results_stage. Returns the ids of the
-- members.
DELETE FROM pgqueue_stage_results
WHERE ctid = ANY (ARRAY(
    SELECT collected.ctid
    FROM pgqueue_workflows AS workflow
    JOIN pgqueue_stage_results AS collected
        ON collected.stage_id >= workflow.id << 16 AND collected.stage_id < workflow.id + 1 << 16
    WHERE workflow.ended_at < statement_timestamp() - make_interval(days => %(days)s::integer)
    LIMIT 1000
    FOR UPDATE OF workflow, collected SKIP LOCKED
))
RETURNING job_id;
