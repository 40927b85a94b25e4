-- Forget calls whose rows in the outbox are gone, once no relay can have them still. Called by relay.Relay. Locks its
-- rows.
DELETE FROM pgqueue_handed_over WHERE id = ANY (%(ids)s::bigint[]) AND job_id = id RETURNING id;
