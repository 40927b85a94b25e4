-- Schedules whose tick is over by a minute, or whose latest tick could not become a job (last_error).
SELECT
    schedule.name,
    schedule.task,
    COALESCE(NULLIF(schedule.cron, ''), schedule.every_seconds || ' s') AS due,
    CASE
        WHEN schedule.next_at < statement_timestamp() THEN date_trunc('second', statement_timestamp() - schedule.next_at)
    END AS late_by,
    schedule.last_error
FROM pgqueue_schedules AS schedule
WHERE schedule.is_enabled
  AND (schedule.next_at < statement_timestamp() - interval '1 minute' OR schedule.last_error <> '')
ORDER BY schedule.next_at;

--       name      |          task           |    due    | late_by  |                    last_error
-- ----------------+-------------------------+-----------+----------+---------------------------------------------------
--  nightly report | shop.tasks.build_report | 0 3 * * * | 03:00:00 |
--  sync stock     | shop.tasks.sync_stock   | 600 s     |          | No worker knows the task 'shop.tasks.sync_stock'.
