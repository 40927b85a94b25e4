-- Write down a worker process before it starts, or again if its row was taken away while it was frozen. Called by
-- leases.register(). Returns its id, new for each start; nothing if the row of a given id is there.
INSERT INTO pgqueue_workers (id, supervisor_id, pid, host, name, version, concurrency, queues, lease_until)
VALUES (
    COALESCE(%(worker_id)s::bigint, nextval(pg_get_serial_sequence('pgqueue_workers', 'id'))),
    %(supervisor_id)s::bigint, %(pid)s::integer, %(host)s::text, %(name)s::text, %(version)s::text,
    %(concurrency)s::integer, %(queues)s::jsonb,
    statement_timestamp() + make_interval(secs => %(lease_seconds)s::integer)
)
ON CONFLICT (id) DO NOTHING
RETURNING id;
