-- The schedules that came from code, and others that have one of these names. Called by schedules.sync. Locks
-- nothing. Returns a row for each, with its definition as one JSON object.
SELECT
    schedule.name,
    schedule.source = 'code',
    schedule.edited_at IS NOT NULL,
    COALESCE(schedule.last_at, schedule.created_at) AT TIME ZONE 'UTC',
    jsonb_build_object(
        'name', schedule.name,
        'task', schedule.task,
        'cron', schedule.cron,
        'every_seconds', schedule.every_seconds,
        'timezone', schedule.timezone,
        'jitter_seconds', schedule.jitter_seconds,
        'catch_up', schedule.catch_up,
        'catch_up_limit', schedule.catch_up_limit,
        'args', schedule.args,
        'kwargs', schedule.kwargs,
        'options', schedule.options
    )::text
FROM pgqueue_schedules AS schedule
WHERE schedule.source = 'code' OR schedule.name = ANY (%(names)s::text[]);
