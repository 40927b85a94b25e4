-- Which leases still stand. Called by ack.write() for the ids a statement did not return: these were locked by somebody
-- else, the others have lost their lease. Reads by primary key; locks nothing.
SELECT job.id
FROM unnest(%(ids)s::bigint[], %(lease_tokens)s::bigint[]) AS ack (id, lease_token)
JOIN pgqueue_jobs AS job USING (id, lease_token);
