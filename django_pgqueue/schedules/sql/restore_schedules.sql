-- Let schedules from code be as the code has them again. Called by manage.restore(); the next pass of
-- schedules.sync changes the rows. Steps over locked rows. Returns the names of those that had been edited.
WITH chosen AS MATERIALIZED (
    SELECT schedule.id
    FROM pgqueue_schedules AS schedule
    WHERE schedule.name = ANY (%(names)s::text[]) AND schedule.source = 'code' AND schedule.edited_at IS NOT NULL
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgqueue_schedules AS schedule
SET edited_at = NULL
FROM chosen
WHERE schedule.id = chosen.id
RETURNING schedule.name;
