-- Remove jobs that succeeded and are not kept. Called by ack.send() and, alone, in an atomic task's own transaction.
-- Never waits: locked rows are left for the next flush. Each row is looked up by primary key, fenced by its lease
-- token, and deleted where it lies; LATERAL with a LIMIT is a plan that no statistics can turn into a scan of the
-- table. An id missing from the answer was locked, or lost its lease: ack asks which. Also returns whether a caller
-- waits.
DELETE FROM pgqueue_jobs
WHERE ctid = ANY (ARRAY(
    SELECT job.place
    FROM unnest(%(ids)s::bigint[], %(lease_tokens)s::bigint[]) AS ack (id, lease_token)
    CROSS JOIN LATERAL (
        SELECT one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.id = ack.id AND one.lease_token = ack.lease_token
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS job
))
RETURNING id, has_waiters;
