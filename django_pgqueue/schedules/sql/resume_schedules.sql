-- Let paused schedules go on at these ticks. Called by manage.resume(), behind paused_schedules.sql, which
-- has locked the rows. Returns the names.
UPDATE pgqueue_schedules AS schedule
SET is_enabled = TRUE, paused_by = '', last_error = '', next_at = resumed.next_at
FROM unnest(%(ids)s::bigint[], %(next_ats)s::timestamptz[]) AS resumed (id, next_at)
WHERE schedule.id = resumed.id
RETURNING schedule.name;
