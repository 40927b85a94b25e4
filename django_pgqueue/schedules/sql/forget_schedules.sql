-- Remove schedules from code that no worker's code has declared for thirty days. Called by schedules.sync
-- behind confirm_schedules.sql. A locked row is left for the next time. Returns the names.
WITH gone AS MATERIALIZED (
    SELECT schedule.id
    FROM pgqueue_schedules AS schedule
    WHERE schedule.source = 'code'
      AND schedule.declared_at < statement_timestamp() - interval '30 days'
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pgqueue_schedules AS schedule
USING gone
WHERE schedule.id = gone.id
RETURNING schedule.name;
