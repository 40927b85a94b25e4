-- Make members of the kept calls of stages, as blocked. Called by rerun.rerun(), which has reset the stages: in a statement
-- of its own, as the members that were removed have held unique keys. A call that expires does so as long after now as it did
-- after its first start. Keys are taken in their order, as enqueueing does. Returns ids, tasks and queues, and the unique
-- keys that were taken; no row for a call whose key another job holds.
INSERT INTO pgqueue_jobs (
    task, queue, priority, run_at, status, max_attempts, lease_seconds, timeout_seconds, keep, keep_seconds, parent_id,
    schedule_id, stage_id, backend, args, kwargs, tags, metadata, expires_at, unique_key, unique_until, unique_hold_seconds,
    concurrency_key, concurrency_limit, concurrency_strict, fair_key
)
SELECT
    call.task, call.queue, call.priority, call.run_at, 'blocked', call.max_attempts, call.lease_seconds,
    call.timeout_seconds, call.keep, call.keep_seconds, call.parent_id, call.schedule_id, kept.stage_id, call.backend,
    call.args, call.kwargs, call.tags, call.metadata, call.expires_at + (statement_timestamp() - call.enqueued_at),
    call.unique_key, call.unique_until, call.unique_hold_seconds, call.concurrency_key, call.concurrency_limit,
    call.concurrency_strict, call.fair_key
FROM pgqueue_kept_calls AS kept
CROSS JOIN LATERAL jsonb_populate_record(NULL::pgqueue_jobs, kept.call) AS call
WHERE kept.stage_id = ANY (%(ids)s::bigint[])
ORDER BY call.unique_key COLLATE "C", kept.id
ON CONFLICT (unique_key) WHERE unique_until IN ('end', 'start') DO NOTHING
RETURNING id, task, queue, unique_key;
