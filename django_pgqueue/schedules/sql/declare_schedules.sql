-- Add schedules that code declares. Called by schedules.sync, with a limit to how long it may wait for a session that
-- is taking the name. Where another worker has added one, or the name is taken, nothing is done. Returns the names that
-- were added.
INSERT INTO pgqueue_schedules (
    next_at, name, task, cron, every_seconds, timezone, jitter_seconds, catch_up, catch_up_limit, args, kwargs, options,
    source, declared_at
)
SELECT
    new.next_at, new.name, new.task, new.cron, new.every_seconds, new.timezone, new.jitter_seconds, new.catch_up,
    new.catch_up_limit, new.args, new.kwargs, new.options, 'code', statement_timestamp()
FROM jsonb_populate_recordset(NULL::pgqueue_schedules, %(definitions)s::jsonb) AS new
ON CONFLICT (name) DO NOTHING
RETURNING name;
