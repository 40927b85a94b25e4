-- Remove calls that are jobs by now, in the transaction that has locked them. Called by relay.Relay. Returns their ids.
DELETE FROM pgqueue_outbox WHERE id = ANY (%(ids)s::bigint[]) RETURNING id;
