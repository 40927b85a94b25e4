-- Put off calls that the queue's database refuses, or whose keys are locked there, in the transaction that has locked
-- their rows, so that others go on: for half their ages, within bounds, so that those that are locked for long leave most
-- of the time to others. Called by relay.Relay. Returns the seconds until they are due.
UPDATE pgqueue_outbox
SET
    error = %(error)s::text,
    next_at = statement_timestamp() + LEAST(
        GREATEST(
            (statement_timestamp() - enqueued_at) / 2,
            make_interval(secs => %(least_seconds)s::double precision)
        ),
        make_interval(secs => %(most_seconds)s::double precision)
    )
WHERE id = ANY (%(ids)s::bigint[])
RETURNING extract(epoch FROM next_at - statement_timestamp())::double precision;
