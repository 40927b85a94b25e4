-- What workers have done in each queue in the last minutes that are over. Called by insights.throughput. Reads that
-- range of pgqueue_stats_minute; locks nothing. Returns the queue and the sums; nothing for queues in which nothing was
-- done.
SELECT
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
WHERE stat.minute >= date_trunc('minute', COALESCE(%(now)s::timestamptz, statement_timestamp()))
        - make_interval(mins => %(minutes)s::integer)
  AND stat.minute < date_trunc('minute', COALESCE(%(now)s::timestamptz, statement_timestamp()))
GROUP BY stat.queue;
