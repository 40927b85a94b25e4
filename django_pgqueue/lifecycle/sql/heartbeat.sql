-- Renew the leases of all processes of one command. Called by heartbeat.beat(). Steps over locked rows. Leans on the
-- primary key. An id missing from the answer was locked, or forgotten after an hour of
-- silence.
WITH alive AS MATERIALIZED (
    SELECT worker.id, process.pid
    FROM unnest(%(worker_ids)s::bigint[], %(pids)s::integer[]) AS process (id, pid)
    JOIN pgqueue_workers AS worker USING (id)
    FOR NO KEY UPDATE OF worker SKIP LOCKED
)
UPDATE pgqueue_workers AS worker
SET heartbeat_at = statement_timestamp(),
    lease_until = statement_timestamp() + make_interval(secs => %(lease_seconds)s::integer),
    pid = alive.pid,
    session_pid = %(session_pid)s::integer
FROM alive
WHERE worker.id = alive.id
RETURNING worker.id;
