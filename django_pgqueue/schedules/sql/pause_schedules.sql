-- Pause schedules. Called by manage.pause(). Steps over locked rows. Returns the names of those that were
-- not paused before.
WITH chosen AS MATERIALIZED (
    SELECT schedule.id
    FROM pgqueue_schedules AS schedule
    WHERE schedule.name = ANY (%(names)s::text[]) AND schedule.is_enabled
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_schedules AS schedule
SET is_enabled = FALSE, paused_by = %(by)s::text
FROM chosen
WHERE schedule.id = chosen.id
RETURNING schedule.name;
