-- Return the leases that are still valid. Called by ack.still_leased() for ids that a statement did not return: they were
-- locked by another session, the others have lost their lease. Reads by primary key, as finish.sql does; locks nothing.
SELECT ack.id
FROM unnest(%(ids)s::bigint[], %(lease_tokens)s::bigint[]) AS ack (id, lease_token)
CROSS JOIN LATERAL (
    SELECT
    FROM pgqueue_jobs AS one
    WHERE one.id = ack.id AND one.lease_token = ack.lease_token
    LIMIT 1
) AS job;
