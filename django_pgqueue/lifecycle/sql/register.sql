-- Write down a worker process before it starts. Called by heartbeat.register(). Returns its id, new for each start.
INSERT INTO pgqueue_workers (supervisor_id, pid, host, name, version, concurrency, queues, lease_until)
VALUES (
    %(supervisor_id)s::bigint, %(pid)s::integer, %(host)s::text, %(name)s::text, %(version)s::text,
    %(concurrency)s::integer, %(queues)s::jsonb,
    statement_timestamp() + make_interval(secs => %(lease_seconds)s::integer)
)
RETURNING id;
