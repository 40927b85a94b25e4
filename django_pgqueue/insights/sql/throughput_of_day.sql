-- What workers have done in each queue in each quarter of an hour of the last day, the one that is not over included.
-- Called by insights.throughput. Reads that range of pgqueue_stats_minute once; locks nothing. Returns the beginning,
-- the queue and the sums; and the beginning of each quarter once without a queue, also of those in which nothing was
-- done.
WITH last AS MATERIALIZED (
    SELECT date_bin(
        INTERVAL '15 minutes', COALESCE(%(now)s::timestamptz, statement_timestamp()), TIMESTAMPTZ 'epoch'
    ) AS begins_at
)
SELECT
    date_bin(INTERVAL '15 minutes', stat.minute, TIMESTAMPTZ 'epoch') AS begins_at,
    stat.queue,
    sum(stat.succeeded)::bigint,
    sum(stat.failed)::bigint,
    sum(stat.retried)::bigint,
    sum(stat.died)::bigint,
    sum(stat.lost)::bigint,
    sum(stat.stale)::bigint,
    sum(stat.wait_seconds),
    sum(stat.run_seconds)
FROM pgqueue_stats AS stat
WHERE stat.minute >= (SELECT last.begins_at - 95 * INTERVAL '15 minutes' FROM last)
  AND stat.minute < (SELECT last.begins_at + INTERVAL '15 minutes' FROM last)
GROUP BY date_bin(INTERVAL '15 minutes', stat.minute, TIMESTAMPTZ 'epoch'), stat.queue
UNION ALL
SELECT last.begins_at - back.number * INTERVAL '15 minutes', NULL, 0, 0, 0, 0, 0, 0, 0, 0
FROM last, generate_series(0, 95) AS back (number);
