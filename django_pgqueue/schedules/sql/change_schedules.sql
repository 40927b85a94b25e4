-- Give schedules from code the definition that the code has now. Called by schedules.sync. Leaves alone what
-- was edited in the admin; leaves for the next time a row that is locked, or has ticked since its next_at was reckoned:
-- that tick would come twice. A missing next_at stays. Returns the names changed.
WITH changed AS MATERIALIZED (
    SELECT
        schedule.id, new.next_at, new.task, new.cron, new.every_seconds, new.timezone, new.jitter_seconds, new.catch_up,
        new.catch_up_limit, new.args, new.kwargs, new.options
    FROM jsonb_to_recordset(%(definitions)s::jsonb) AS new (
        since timestamptz, next_at timestamptz, name text, task text, cron text, every_seconds double precision,
        timezone text, jitter_seconds double precision, catch_up text, catch_up_limit integer, args jsonb, kwargs jsonb,
        options jsonb
    )
    JOIN pgqueue_schedules AS schedule USING (name)
    WHERE schedule.source = 'code'
      AND schedule.edited_at IS NULL
      AND COALESCE(schedule.last_at, schedule.created_at) = new.since
    FOR NO KEY UPDATE OF schedule SKIP LOCKED
)
UPDATE pgqueue_schedules AS schedule
SET next_at = COALESCE(changed.next_at, schedule.next_at),
    task = changed.task,
    cron = changed.cron,
    every_seconds = changed.every_seconds,
    timezone = changed.timezone,
    jitter_seconds = changed.jitter_seconds,
    catch_up = changed.catch_up,
    catch_up_limit = changed.catch_up_limit,
    args = changed.args,
    kwargs = changed.kwargs,
    options = changed.options,
    last_error = '',
    declared_at = statement_timestamp()
FROM changed
WHERE schedule.id = changed.id
RETURNING schedule.name;
