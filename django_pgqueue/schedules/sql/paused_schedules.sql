-- Lock paused schedules. Called by manage.resume(), which reckons their next ticks. Steps over locked
-- rows. Returns what a tick is reckoned from, and the time.
SELECT
    schedule.id, schedule.name, schedule.cron, schedule.every_seconds, schedule.timezone, schedule.next_at,
    statement_timestamp()
FROM pgqueue_schedules AS schedule
WHERE schedule.name = ANY (%(names)s::text[]) AND NOT schedule.is_enabled
FOR NO KEY UPDATE SKIP LOCKED;
