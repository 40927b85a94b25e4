-- Lock those of some live jobs that have one of these statuses still. Called by actions.lock_with_status() in the
-- transaction that goes on to change them. Locked rows are left out. Found by primary key.
SELECT job.id
FROM pgqueue_jobs AS job
WHERE job.id = ANY (%(ids)s::bigint[]) AND job.status = ANY (%(statuses)s::text[])
FOR NO KEY UPDATE SKIP LOCKED;
