-- The schedules with these names. Called by manage.run(). Locks nothing. Returns the same columns as
-- take_schedules.sql.
SELECT
    schedule.id, schedule.name, schedule.task, schedule.cron, schedule.every_seconds, schedule.timezone,
    schedule.jitter_seconds, schedule.catch_up, schedule.catch_up_limit, schedule.args::text, schedule.kwargs::text,
    schedule.options::text, schedule.last_error, schedule.next_at, statement_timestamp()
FROM pgqueue_schedules AS schedule
WHERE schedule.name = ANY (%(names)s::text[])
ORDER BY schedule.name;
