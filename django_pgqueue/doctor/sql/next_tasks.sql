-- Which tasks the jobs have that come next: of the first ones of each queue, in the order of the claim, and of the
-- first scheduled ones, up to a limit each; an unknown task puts its jobs off, so they are often found among these.
-- Called by doctor. Reads pgqueue_jobs_claim for each of the given queues, and pgqueue_jobs_due; locks nothing.
-- Returns the task and its backend, how many jobs were seen, and one of them.
SELECT seen.task, seen.backend, count(*), min(seen.id)
FROM (
    SELECT first.task, first.backend, first.id
    FROM unnest(%(names)s::text[]) AS chosen (name)
    CROSS JOIN LATERAL (
        SELECT job.task, job.backend, job.id
        FROM pgqueue_jobs AS job
        WHERE job.queue = chosen.name AND job.status = 'queued'
        ORDER BY job.queue, (-job.priority), job.run_at, job.id
        LIMIT %(limit)s::bigint
    ) AS first
    UNION ALL
    (
        SELECT job.task, job.backend, job.id
        FROM pgqueue_jobs AS job
        WHERE job.status IN ('scheduled', 'reserved') AND job.status = 'scheduled'
        ORDER BY job.run_at
        LIMIT 10 * %(limit)s::bigint
    )
) AS seen
GROUP BY seen.task, seen.backend;
