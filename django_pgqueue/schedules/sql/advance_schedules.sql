-- Move schedules on to their next tick. Called by schedules.enqueuer behind the jobs of the ticks that are over, in the
-- same transaction. Compares the tick: one that was moved on by another session is missing from the answer, and the
-- caller rolls back. Waits for no lock: take_schedules.sql has locked the rows.
UPDATE pgqueue_schedules AS schedule
SET next_at = turn.next_at,
    last_at = COALESCE(turn.last_at, schedule.last_at),
    last_job_id = COALESCE(turn.job_id, schedule.last_job_id),
    last_error = turn.error
FROM unnest(
    %(ids)s::bigint[],
    %(ticks)s::timestamptz[],
    %(next_ats)s::timestamptz[],
    %(last_ats)s::timestamptz[],
    %(job_ids)s::bigint[],
    %(errors)s::text[]
) AS turn (id, tick, next_at, last_at, job_id, error)
WHERE schedule.id = turn.id AND schedule.next_at = turn.tick
RETURNING schedule.id;
