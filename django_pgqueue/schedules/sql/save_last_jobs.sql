-- Note at schedules which job was their latest. Called by manage.run(). A locked row goes without: it is
-- for people to read. Returns the names.
WITH chosen AS MATERIALIZED (
    SELECT schedule.id, job.id AS job_id
    FROM unnest(%(names)s::text[], %(job_ids)s::bigint[]) AS job (name, id)
    JOIN pgqueue_schedules AS schedule USING (name)
    FOR NO KEY UPDATE OF schedule SKIP LOCKED
)
UPDATE pgqueue_schedules AS schedule
SET last_job_id = chosen.job_id
FROM chosen
WHERE schedule.id = chosen.id
RETURNING schedule.name;
