-- The pending work of all passes, in one round trip: most of the time none. Called by pending_work.pending_work()
-- before each pass of maintenance. Reads an entry or a few of each partial index, whose predicates are repeated; locks
-- nothing. Scheduled jobs and reserved rows share an index: a hundred due entries are searched for reserved
-- rows; scheduled jobs are searched no further than two seconds ahead.
-- Queued jobs are searched for idle workers alone: during a backlog the first one is behind the entries of claimed jobs,
-- which stay as long as an old snapshot does.
SELECT
    (
        SELECT extract(epoch FROM job.run_at - statement_timestamp())::double precision
        FROM pgqueue_jobs AS job
        WHERE job.status IN ('scheduled', 'reserved')
          AND job.status = 'scheduled'
          AND job.run_at <= statement_timestamp() + INTERVAL '2 seconds'
        ORDER BY job.run_at
        LIMIT 1
    ),
    COALESCE((
        SELECT bool_or(first.status = 'reserved')
        FROM (
            SELECT job.status
            FROM pgqueue_jobs AS job
            WHERE job.status IN ('scheduled', 'reserved') AND job.run_at <= statement_timestamp()
            ORDER BY job.run_at
            LIMIT 100
        ) AS first
    ), false),
    EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.expires_at <= statement_timestamp() AND job.status IN ('scheduled', 'queued', 'limited', 'blocked')
    ),
    EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.unique_until = 'started'
          AND job.lease_token = 0
          AND job.status <> 'reserved'
          AND (job.expires_at > statement_timestamp()) IS NOT FALSE
          AND job.kill_requested_at IS NULL
    ),
    EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.status = 'limited'),
    EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.status = 'running'),
    CASE
        WHEN %(is_idle)s::boolean THEN EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.status = 'queued')
    END,
    (
        SELECT extract(epoch FROM schedule.next_at - statement_timestamp())::double precision
        FROM pgqueue_schedules AS schedule
        WHERE schedule.is_enabled
        ORDER BY schedule.next_at
        LIMIT 1
    ),
    (
        SELECT extract(epoch FROM bulk_action.next_at - statement_timestamp())::double precision
        FROM pgqueue_bulk_actions AS bulk_action
        WHERE bulk_action.ended_at IS NULL
        ORDER BY bulk_action.next_at
        LIMIT 1
    ),
    EXISTS (SELECT FROM pgqueue_stages AS stage WHERE stage.status = 'open'),
    EXISTS (SELECT FROM pgqueue_stages AS stage WHERE stage.moves_after IS NOT NULL),
    EXISTS (
        SELECT
        FROM pgqueue_workflows AS workflow
        WHERE workflow.status = 'open' AND workflow.deadline_at <= statement_timestamp()
    );
