-- Calls that were noted as handed over long ago, as where a relay has ended in between. Called by relay.Relay. Locks
-- nothing.
SELECT id FROM pgqueue_handed_over
WHERE
    id BETWEEN %(first)s::bigint AND %(last)s::bigint
    AND at < statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
LIMIT %(limit)s::integer;
