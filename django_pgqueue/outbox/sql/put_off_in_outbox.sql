-- Put off calls that the queue's database refuses, or whose keys are locked there, in the transaction that has locked
-- their rows, so that others go on: for half their ages, within bounds, so that those that are locked for long leave most
-- of the time to others. One that changes the job that holds its key is put off for the least time, so that few that come
-- later pass it. Called by relay.Relay. Returns the seconds until they are due.
UPDATE pgqueue_outbox
SET
    error = %(error)s::text,
    next_at = statement_timestamp() + LEAST(
        GREATEST(
            (statement_timestamp() - enqueued_at) / 2,
            make_interval(secs => %(least_seconds)s::double precision)
        ),
        make_interval(
            secs => CASE
                WHEN call #>> '{options,on_conflict}' IN ('replace', 'later', 'earlier') THEN %(least_seconds)s
                ELSE %(most_seconds)s
            END::double precision
        )
    )
WHERE id = ANY (%(ids)s::bigint[])
RETURNING extract(epoch FROM next_at - statement_timestamp())::double precision;
