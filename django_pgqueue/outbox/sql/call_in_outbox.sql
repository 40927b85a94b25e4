-- One call in the outbox, with the time of its database. Called by lookup.find() where no job has its id yet. Locks
-- nothing. Leans on the primary key.
SELECT call::text, (call #>> '{options,tags}')::text[], enqueued_at, statement_timestamp()
FROM pgqueue_outbox
WHERE id = %(id)s::bigint;
