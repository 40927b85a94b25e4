-- Of which shape the arguments are of jobs that are still to run; values decide nothing, so none is returned. Looks at
-- the first jobs of each given queue in the order of the claim, at the first scheduled and limited ones and at the
-- newest, up to a limit each, along pgqueue_jobs_claim, pgqueue_jobs_due, pgqueue_jobs_limited and the primary key;
-- locks nothing. Called by doctor. Returns task, backend, type and length of args, type and keys of kwargs, how many,
-- and one id.
WITH seen AS (
    SELECT first.id
    FROM unnest(%(names)s::text[]) AS chosen (name)
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM pgqueue_jobs AS job
        WHERE job.queue = chosen.name AND job.status = 'queued'
        ORDER BY job.queue, (-job.priority), job.run_at, job.id
        LIMIT %(limit)s::bigint
    ) AS first
    UNION
    (
        SELECT job.id
        FROM pgqueue_jobs AS job
        WHERE job.status IN ('scheduled', 'reserved') AND job.status = 'scheduled'
        ORDER BY job.run_at
        LIMIT 10 * %(limit)s::bigint
    )
    UNION
    (
        SELECT job.id
        FROM pgqueue_jobs AS job
        WHERE job.status = 'limited'
        ORDER BY job.concurrency_key, (-job.priority), job.run_at, job.id
        LIMIT 10 * %(limit)s::bigint
    )
    UNION
    (SELECT job.id FROM pgqueue_jobs AS job ORDER BY job.id DESC LIMIT 10 * %(limit)s::bigint)
)
SELECT shape.task, shape.backend, shape.args, shape.length, shape.kwargs, shape.keys, count(*), min(shape.id)
FROM (
    SELECT
        job.id,
        job.task,
        job.backend,
        jsonb_typeof(job.args) AS args,
        CASE WHEN jsonb_typeof(job.args) = 'array' THEN jsonb_array_length(job.args) END AS length,
        jsonb_typeof(job.kwargs) AS kwargs,
        CASE
            WHEN jsonb_typeof(job.kwargs) = 'object' THEN ARRAY(SELECT jsonb_object_keys(job.kwargs) ORDER BY 1)
        END AS keys
    FROM seen
    JOIN pgqueue_jobs AS job ON job.id = seen.id
    WHERE job.status IN ('queued', 'scheduled', 'limited')
) AS shape
GROUP BY shape.task, shape.backend, shape.args, shape.length, shape.kwargs, shape.keys;
