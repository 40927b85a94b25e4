-- The schedules that are due next, and in how many seconds; those that are due have 0 or less. Called by
-- schedules.enqueuer. Locks nothing; reads pgqueue_schedules_due in its order. A schedule of code is left to workers
-- whose code declares it, any other to those that know its task, so that one that is unknown to a worker blocks no
-- other.
SELECT
    schedule.id,
    extract(epoch FROM schedule.next_at - COALESCE(%(now)s::timestamptz, statement_timestamp()))::double precision
FROM pgqueue_schedules AS schedule
WHERE schedule.is_enabled
  AND CASE
      WHEN schedule.source = 'code' THEN schedule.name = ANY (%(names)s::text[])
      ELSE schedule.task = ANY (%(tasks)s::text[])
  END
ORDER BY schedule.next_at
LIMIT 1000;
