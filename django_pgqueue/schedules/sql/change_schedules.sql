-- Give schedules from code the definition that the code has now. Called by schedules.sync. Leaves alone what
-- was edited in the admin; leaves for the next time a row that is locked, or has ticked since its next_at was reckoned:
-- that tick would come twice. In the definitions, last_at is the tick, or else the creation, that next_at was reckoned
-- from: it is compared, not stored. A missing next_at stays. Returns the names changed.
WITH changed AS MATERIALIZED (
    SELECT
        schedule.id, new.next_at, new.task, new.cron, new.every_seconds, new.timezone, new.jitter_seconds, new.catch_up,
        new.catch_up_limit, new.args, new.kwargs, new.options
    FROM jsonb_populate_recordset(NULL::pgqueue_schedules, %(definitions)s::jsonb) AS new
    JOIN pgqueue_schedules AS schedule USING (name)
    WHERE schedule.source = 'code'
      AND schedule.edited_at IS NULL
      AND COALESCE(schedule.last_at, schedule.created_at) = new.last_at
    FOR NO KEY UPDATE OF schedule SKIP LOCKED
)
UPDATE pgqueue_schedules AS schedule
SET next_at = COALESCE(changed.next_at, schedule.next_at),
    (task, cron, every_seconds, timezone, jitter_seconds, catch_up, catch_up_limit, args, kwargs, options) = (
        changed.task, changed.cron, changed.every_seconds, changed.timezone, changed.jitter_seconds, changed.catch_up,
        changed.catch_up_limit, changed.args, changed.kwargs, changed.options
    ),
    last_error = '',
    declared_at = statement_timestamp()
FROM changed
WHERE schedule.id = changed.id
RETURNING schedule.name;
