-- Note at schedules that no worker has taken for a minute that their task is unknown here. Called by
-- schedules.sync. A locked row is left for the next time. Returns the names and tasks of those it was not noted
-- at before.
WITH strange AS MATERIALIZED (
    SELECT schedule.id
    FROM pgqueue_schedules AS schedule
    WHERE schedule.is_enabled
      AND schedule.source <> 'code'
      AND schedule.next_at < statement_timestamp() - interval '1 minute'
      AND schedule.task <> ALL (%(tasks)s::text[])
      AND schedule.last_error = ''
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_schedules AS schedule
SET last_error = format('No worker knows the task %%L.', schedule.task)
FROM strange
WHERE schedule.id = strange.id
RETURNING schedule.name, schedule.task;
