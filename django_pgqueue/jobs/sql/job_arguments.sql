-- The arguments of jobs of one table, to check whether a match may be seen. Called by search.page_of().
-- Reads primary keys; the other tables are not touched. Locks nothing. Returns id, task, args and kwargs as text.
SELECT job.id, job.task, job.args::text, job.kwargs::text
FROM pgqueue_jobs AS job
WHERE %(source)s::text = 'live' AND job.id = ANY (%(ids)s::bigint[])
UNION ALL
SELECT job.id, job.task, job.args::text, job.kwargs::text
FROM pgqueue_dead_jobs AS job
WHERE %(source)s::text = 'dead' AND job.id = ANY (%(ids)s::bigint[])
UNION ALL
SELECT job.id, job.task, job.args::text, job.kwargs::text
FROM pgqueue_succeeded_jobs AS job
WHERE %(source)s::text = 'succeeded' AND job.id = ANY (%(ids)s::bigint[]);
