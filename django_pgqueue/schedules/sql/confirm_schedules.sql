-- Note that code still declares these schedules, every ten minutes at most. Called by schedules.sync. A locked
-- row is left for the next time. Returns the ids.
WITH old AS MATERIALIZED (
    SELECT schedule.id
    FROM pgqueue_schedules AS schedule
    WHERE schedule.source = 'code'
      AND schedule.name = ANY (%(names)s::text[])
      AND COALESCE(schedule.declared_at < statement_timestamp() - interval '10 minutes', TRUE)
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_schedules AS schedule
SET declared_at = statement_timestamp()
FROM old
WHERE schedule.id = old.id
RETURNING schedule.id;
