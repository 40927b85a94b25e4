-- Note the jobs that calls have met, which had their unique keys, in the transaction that has noted the calls. Called by
-- relay.Relay. Returns the ids of the calls.
UPDATE pgqueue_handed_over
SET job_id = met.job_id
FROM unnest(%(ids)s::bigint[], %(job_ids)s::bigint[]) AS met (id, job_id)
WHERE pgqueue_handed_over.id = met.id
RETURNING pgqueue_handed_over.id;
