-- Note calls as handed over, in the transaction that makes jobs of them. Called by relay.Relay. Waits for another relay
-- that has noted the same call and whose transaction is still open: it has lost its lock on the call. Returns the ids
-- that were not noted yet, in their order, and then whether the time for that is not over.
WITH noted AS (
    INSERT INTO pgqueue_handed_over (id, job_id)
    SELECT call.id, call.id FROM unnest(%(ids)s::bigint[]) AS call (id)
    ORDER BY call.id
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)
SELECT
    (SELECT array_agg(noted.id ORDER BY noted.id) FROM noted),
    clock_timestamp() < %(begun_at)s::timestamptz + make_interval(secs => %(seconds)s::double precision);
