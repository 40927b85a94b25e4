-- Why retry_with.sql has left a dead job alone. Called by retry_with.retry_with() in a statement of its own: the
-- snapshot of that one may be older. Found by primary key, and by pgqueue_jobs_unique; locks nothing. Returns the job
-- that the same form has made already, and the live job that has the unique key. No row: it is not dead any more.
SELECT
    (
        SELECT (note.entry ->> 'retried_as')::bigint
        FROM jsonb_array_elements(dead.errors) AS note (entry)
        WHERE note.entry ->> 'form' = %(form)s::text
        LIMIT 1
    ),
    (
        SELECT job.id
        FROM pgqueue_jobs AS job
        WHERE job.unique_key = %(unique_key)s::text AND job.unique_until IN ('end', 'start')
        LIMIT 1
    )
FROM pgqueue_dead_jobs AS dead
WHERE dead.id = %(id)s::bigint;
