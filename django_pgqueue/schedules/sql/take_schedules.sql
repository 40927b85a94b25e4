-- Lock those schedules that are still due. Called by schedules.enqueuer in the transaction that inserts their jobs.
-- Steps over locked rows: another worker is enqueueing their jobs, or staff edit them. Returns the rows, and the
-- time, both in UTC.
SELECT
    schedule.id, schedule.name, schedule.task, schedule.cron, schedule.every_seconds, schedule.timezone,
    schedule.jitter_seconds, schedule.catch_up, schedule.catch_up_limit, schedule.args::text, schedule.kwargs::text,
    schedule.options::text, schedule.last_error, schedule.next_at AT TIME ZONE 'UTC',
    COALESCE(%(now)s::timestamptz, statement_timestamp()) AT TIME ZONE 'UTC'
FROM pgqueue_schedules AS schedule
WHERE schedule.id = ANY (%(ids)s::bigint[])
  AND schedule.is_enabled
  AND schedule.next_at <= COALESCE(%(now)s::timestamptz, statement_timestamp())
FOR NO KEY UPDATE SKIP LOCKED;
