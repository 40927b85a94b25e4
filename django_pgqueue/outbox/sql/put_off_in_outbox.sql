-- Put off a call that the queue's database refuses, in the transaction that has locked it, so that others go on. Called
-- by relay.Relay. Returns its id.
UPDATE pgqueue_outbox
SET
    error = %(error)s::text,
    next_at = statement_timestamp() + make_interval(secs => %(seconds)s::double precision)
WHERE id = %(id)s::bigint
RETURNING id;
