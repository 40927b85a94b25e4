-- Tasks that fail now and did not yesterday: the last 15 minutes against the day before, at least five failures and twice
-- the share of before. The counts are kept for STATS_DAYS.
-- Index: pgqueue_stats_minute
WITH recent AS (
    SELECT
        stat.queue, stat.task,
        sum(stat.succeeded + stat.failed + stat.lost) AS attempts,
        sum(stat.failed + stat.lost) AS failures
    FROM pgqueue_stats AS stat
    WHERE stat.minute >= statement_timestamp() - interval '15 minutes'
    GROUP BY stat.queue, stat.task
),
before AS (
    SELECT
        stat.queue, stat.task,
        sum(stat.succeeded + stat.failed + stat.lost) AS attempts,
        sum(stat.failed + stat.lost) AS failures
    FROM pgqueue_stats AS stat
    WHERE stat.minute >= statement_timestamp() - interval '24 hours 15 minutes'
      AND stat.minute < statement_timestamp() - interval '15 minutes'
    GROUP BY stat.queue, stat.task
)
SELECT
    recent.queue,
    recent.task,
    recent.attempts,
    recent.failures,
    round(100.0 * recent.failures / recent.attempts, 1) AS percent,
    COALESCE(round(100.0 * before.failures / NULLIF(before.attempts, 0), 1), 0) AS percent_before
FROM recent
LEFT JOIN before USING (queue, task)
WHERE recent.failures >= 5
  AND recent.failures * COALESCE(before.attempts, 1) > 2 * recent.attempts * COALESCE(before.failures, 0)
ORDER BY recent.failures DESC;

--  queue  |          task           | attempts | failures | percent | percent_before
-- --------+-------------------------+----------+----------+---------+----------------
--  emails | shop.tasks.send_receipt |      280 |      192 |    68.6 |            0.1
