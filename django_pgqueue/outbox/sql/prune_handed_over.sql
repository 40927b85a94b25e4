-- Forget old calls, whichever job they became. Called by relay.Relay, once they are known to be gone from the outbox.
DELETE FROM pgqueue_handed_over WHERE id = ANY (%(ids)s::bigint[]) RETURNING id;
