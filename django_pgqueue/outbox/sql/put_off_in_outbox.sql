-- Put off calls that the queue's database refuses, or whose keys are locked there, in the transaction that has locked
-- their rows, so that others go on. Called by relay.Relay. Returns their ids.
UPDATE pgqueue_outbox
SET
    error = %(error)s::text,
    next_at = statement_timestamp() + make_interval(secs => %(seconds)s::double precision)
WHERE id = ANY (%(ids)s::bigint[])
RETURNING id;
