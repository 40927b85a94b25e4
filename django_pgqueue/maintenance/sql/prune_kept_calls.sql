-- Remove the calls that workflows have kept which ended before the given days. Called by pruner.delete_slice(), before the
-- workflows themselves. Takes a bounded slice, and steps over locked rows, also those of a
-- workflow that is just rerun. Leans on pgqueue_workflows_ended and pgqueue_kept_calls_stage. Returns the ids of the
-- calls.
DELETE FROM pgqueue_kept_calls
WHERE ctid = ANY (ARRAY(
    SELECT kept.ctid
    FROM pgqueue_workflows AS workflow
    JOIN pgqueue_kept_calls AS kept
        ON kept.stage_id >= workflow.id << 16 AND kept.stage_id < workflow.id + 1 << 16
    WHERE workflow.ended_at < statement_timestamp() - make_interval(days => %(days)s::integer)
    LIMIT 1000
    FOR UPDATE OF workflow, kept SKIP LOCKED
))
RETURNING id;
