-- Return the outcomes of jobs: the status of live ones, the reason of dead ones, "succeeded"; a job that is missing has
-- left nothing. Called by manage.last_jobs(). Locks nothing; reads by primary keys. Returns the ids with
-- status, attempts and reason.
SELECT job.id, job.status, job.attempts, '' AS reason
FROM pgqueue_jobs AS job
WHERE job.id = ANY (%(ids)s::bigint[])
UNION ALL
SELECT dead.id, 'dead', dead.attempts, dead.reason
FROM pgqueue_dead_jobs AS dead
WHERE dead.id = ANY (%(ids)s::bigint[])
UNION ALL
SELECT succeeded.id, 'succeeded', succeeded.attempts, ''
FROM pgqueue_succeeded_jobs AS succeeded
WHERE succeeded.id = ANY (%(ids)s::bigint[]);
