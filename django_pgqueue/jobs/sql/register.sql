-- Write down a worker process before it starts, or again if its row was taken away while it was frozen. Called by
-- leases.register(). Returns its id, new for each start; nothing if the row of a given id is there. It is quiet if
-- its command is.
INSERT INTO pgqueue_workers (id, supervisor_id, pid, host, name, version, concurrency, queues, quiet_since, quiet_by, lease_until)
VALUES (
    COALESCE(%(worker_id)s::bigint, nextval(pg_get_serial_sequence('pgqueue_workers', 'id'))),
    %(supervisor_id)s::bigint, %(pid)s::integer, %(host)s::text, %(name)s::text, %(version)s::text,
    %(concurrency)s::integer, %(queues)s::jsonb,
    CASE WHEN %(quiet_by)s::text IS NOT NULL THEN statement_timestamp() END, COALESCE(%(quiet_by)s::text, ''),
    statement_timestamp() + make_interval(secs => %(lease_seconds)s::integer)
)
ON CONFLICT (id) DO NOTHING
RETURNING id;
