-- Those of some calls that are in the outbox still, locked by a relay or not. Called by relay.Relay.
-- Locks nothing. Leans on the primary key.
SELECT id FROM pgqueue_outbox WHERE id = ANY (%(ids)s::bigint[]);
