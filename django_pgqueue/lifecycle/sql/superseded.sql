-- Which jobs have given their unique key up at their start, are not running any more, and have found another job with
-- that key. Called by housekeeping.unique, which moves them to dead_jobs in the same transaction. Locks them, steps
-- over those that others hold, and takes a bounded slice. Leans on pgqueue_jobs_started and pgqueue_jobs_unique.
-- Returns the id of the job and that of its twin, and the job's queue and task.
SELECT job.id, twin.id, job.queue, job.task
FROM pgqueue_jobs AS job
CROSS JOIN LATERAL (
    SELECT other.id
    FROM pgqueue_jobs AS other
    WHERE other.unique_key = job.unique_key AND other.unique_scope IN ('live', 'start')
    LIMIT 1
) AS twin
WHERE job.unique_scope = 'started' AND job.lease_token = 0 AND job.status <> 'held'
ORDER BY job.id
LIMIT 1000
FOR UPDATE OF job SKIP LOCKED;
