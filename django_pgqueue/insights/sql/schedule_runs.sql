-- The latest jobs of a schedule and what became of them, the newest first, up to a limit. Called by
-- insights.schedule_info. Reads pgqueue_dead_jobs_schedule, and pgqueue_succeeded_schedule of each partition; of
-- the live jobs that with the given id alone, since no index finds the others. Locks nothing. Returns the columns of
-- schedules.Run.
SELECT run.id, run.status, run.reason, run.attempts, run.run_at, run.started_at, run.ended_at, run.run_seconds, run.error
FROM (
    (
        SELECT
            job.id, job.status, '' AS reason, job.attempts, job.run_at, job.started_at, NULL::timestamptz AS ended_at,
            NULL::double precision AS run_seconds, job.errors -> -1 ->> 'error' AS error
        FROM pgqueue_jobs AS job
        WHERE job.id = %(last_job_id)s::bigint AND job.status <> 'reserved'
    )
    UNION ALL
    (
        SELECT
            job.id, 'dead', job.reason, job.attempts, job.run_at, job.started_at, job.died_at, NULL,
            job.errors -> -1 ->> 'error'
        FROM pgqueue_dead_jobs AS job
        WHERE job.schedule_id = %(schedule_id)s::bigint
        ORDER BY job.schedule_id, job.id DESC
        LIMIT %(limit)s::bigint
    )
    UNION ALL
    (
        SELECT
            job.id, 'succeeded', '', job.attempts, job.run_at, job.started_at, job.succeeded_at, job.run_seconds, NULL
        FROM pgqueue_succeeded_jobs AS job
        WHERE job.schedule_id = %(schedule_id)s::bigint
        ORDER BY job.schedule_id, job.id DESC
        LIMIT %(limit)s::bigint
    )
) AS run
ORDER BY run.id DESC
LIMIT %(limit)s::bigint;
