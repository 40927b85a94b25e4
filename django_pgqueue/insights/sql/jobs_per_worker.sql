-- How many jobs each of these worker processes holds, begun or fetched ahead, up to a limit. Called by
-- insights.worker_info. Reads pgqueue_jobs_running up to the limit for each; locks nothing.
SELECT
    chosen.id,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pgqueue_jobs AS job
            WHERE job.worker_id = chosen.id AND job.status = 'running'
            LIMIT %(limit)s::bigint
        ) AS held
    )
FROM unnest(%(worker_ids)s::bigint[]) AS chosen (id);
