-- The pending work of all passes, in one round trip: most of the time none. Called by pending_work.look()
-- before each pass of the steward. Reads an entry or a few of each partial index, whose predicates are repeated; locks
-- nothing. What is scheduled and what is held stand in the same index: of what is due a hundred entries are looked at
-- for tombstones, and no scheduled job is looked for that is due in more than two seconds.
SELECT
    (
        SELECT extract(epoch FROM job.run_at - statement_timestamp())::double precision
        FROM pgqueue_jobs AS job
        WHERE job.status IN ('scheduled', 'held')
          AND job.status = 'scheduled'
          AND job.run_at <= statement_timestamp() + INTERVAL '2 seconds'
        ORDER BY job.run_at
        LIMIT 1
    ),
    COALESCE((
        SELECT bool_or(first.status = 'held')
        FROM (
            SELECT job.status
            FROM pgqueue_jobs AS job
            WHERE job.status IN ('scheduled', 'held') AND job.run_at <= statement_timestamp()
            ORDER BY job.run_at
            LIMIT 100
        ) AS first
    ), false),
    EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.expires_at <= statement_timestamp() AND job.status IN ('scheduled', 'queued', 'waiting')
    ),
    EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.unique_scope = 'started'
          AND job.lease_token = 0
          AND job.status <> 'held'
          AND (job.expires_at > statement_timestamp()) IS NOT FALSE
          AND job.cancel_requested_at IS NULL
    ),
    EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.status = 'waiting'),
    EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.status = 'running'),
    (
        SELECT extract(epoch FROM schedule.next_at - statement_timestamp())::double precision
        FROM pgqueue_schedules AS schedule
        WHERE schedule.is_enabled
        ORDER BY schedule.next_at
        LIMIT 1
    ),
    (
        SELECT extract(epoch FROM operation.next_at - statement_timestamp())::double precision
        FROM pgqueue_operations AS operation
        WHERE operation.ended_at IS NULL
        ORDER BY operation.next_at
        LIMIT 1
    );
