-- Renew the leases of all processes of one command. Called by leases.heartbeat(). Steps over locked rows. Leans on the
-- primary key. An id missing from the answer was locked, or forgotten after an hour of silence. Returns the ids, and
-- who has asked the command to stop, and to be quiet.
WITH alive AS MATERIALIZED (
    SELECT worker.id, process.pid, process.memory_bytes
    FROM unnest(%(worker_ids)s::bigint[], %(pids)s::integer[], %(memory_bytes)s::bigint[])
        AS process (id, pid, memory_bytes)
    JOIN pgqueue_workers AS worker USING (id)
    FOR NO KEY UPDATE OF worker SKIP LOCKED
)
UPDATE pgqueue_workers AS worker
SET heartbeat_at = statement_timestamp(),
    lease_until = statement_timestamp() + make_interval(secs => %(lease_seconds)s::integer),
    pid = alive.pid,
    memory_bytes = alive.memory_bytes,
    session_pid = %(session_pid)s::integer,
    quiet_since = CASE
        WHEN NOT %(tells_quiet)s::boolean THEN worker.quiet_since
        WHEN %(quiet_by)s::text IS NOT NULL THEN COALESCE(worker.quiet_since, statement_timestamp())
    END,
    quiet_by = CASE WHEN %(tells_quiet)s::boolean THEN COALESCE(%(quiet_by)s::text, '') ELSE worker.quiet_by END
FROM alive
WHERE worker.id = alive.id
RETURNING worker.id,
    CASE WHEN worker.stop_requested_at IS NOT NULL THEN worker.stop_requested_by END,
    CASE WHEN worker.quiet_since IS NOT NULL THEN worker.quiet_by END;
