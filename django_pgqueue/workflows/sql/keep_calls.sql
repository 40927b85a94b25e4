-- Keep the calls of members, as their rows are when they are inserted. Called by members.keep_calls() in the transaction
-- that has inserted them. Locks nothing; found by primary key.
INSERT INTO pgqueue_kept_calls (stage_id, by_stage_id, call)
SELECT job.stage_id, %(by_stage_id)s::bigint, to_jsonb(call)
FROM pgqueue_jobs AS job
CROSS JOIN LATERAL (
    SELECT
        job.task, job.queue, job.priority, job.run_at, job.enqueued_at, job.expires_at, job.max_attempts,
        job.lease_seconds, job.timeout_seconds, job.keep, job.keep_seconds, job.parent_id, job.schedule_id, job.backend,
        job.args, job.kwargs, job.tags, job.metadata, job.unique_key, job.unique_until, job.unique_hold_seconds,
        job.concurrency_key, job.concurrency_limit, job.concurrency_strict, job.fair_key
) AS call
WHERE job.id = ANY (%(ids)s::bigint[])
ORDER BY job.id
RETURNING id;
