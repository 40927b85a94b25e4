-- Remove jobs that succeeded and are not kept. Called by ack.write() and, alone, in an atomic task's own transaction.
-- Never waits: locked rows are left for the next flush. Finds its rows by primary key and fences them by lease token.
-- An id missing from the answer was locked, or lost its lease: ack asks which.
WITH done AS MATERIALIZED (
    SELECT job.id
    FROM unnest(%(ids)s::bigint[], %(lease_tokens)s::bigint[]) AS ack (id, lease_token)
    JOIN pgqueue_jobs AS job USING (id, lease_token)
    FOR UPDATE OF job SKIP LOCKED
)
DELETE FROM pgqueue_jobs
USING done
WHERE pgqueue_jobs.id = done.id
RETURNING pgqueue_jobs.id;
