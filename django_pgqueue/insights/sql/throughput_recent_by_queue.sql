-- What workers have done in each queue in the last minutes and in the one that is not over. Called by
-- insights.throughput. Reads that range of pgqueue_stats_minute once; locks nothing. Returns the queue, the sums, and
-- how many jobs there are in each bucket of the time they waited and of the time they ran; nothing for queues in which
-- nothing was done.
WITH recent AS MATERIALIZED (
    SELECT
        stat.queue, stat.succeeded, stat.failed, stat.retried, stat.died, stat.lost, stat.stale, stat.wait_seconds,
        stat.run_seconds, stat.wait_buckets, stat.run_buckets
    FROM pgqueue_stats AS stat
    WHERE stat.minute >= date_trunc('minute', COALESCE(%(now)s::timestamptz, statement_timestamp()))
            - make_interval(mins => %(minutes)s::integer)
      AND stat.minute <= COALESCE(%(now)s::timestamptz, statement_timestamp())
),
bucket AS MATERIALIZED (
    SELECT recent.queue, bucket.place, sum(bucket.waited)::bigint AS waited, sum(bucket.ran)::bigint AS ran
    FROM recent
    CROSS JOIN unnest(recent.wait_buckets, recent.run_buckets) WITH ORDINALITY AS bucket (waited, ran, place)
    GROUP BY recent.queue, bucket.place
),
spread AS MATERIALIZED (
    SELECT
        bucket.queue,
        array_agg(COALESCE(bucket.waited, 0) ORDER BY bucket.place) AS waited,
        array_agg(COALESCE(bucket.ran, 0) ORDER BY bucket.place) AS ran
    FROM bucket
    GROUP BY bucket.queue
)
SELECT
    recent.queue,
    sum(recent.succeeded)::bigint,
    sum(recent.failed)::bigint,
    sum(recent.retried)::bigint,
    sum(recent.died)::bigint,
    sum(recent.lost)::bigint,
    sum(recent.stale)::bigint,
    sum(recent.wait_seconds),
    sum(recent.run_seconds),
    COALESCE(spread.waited, '{}'),
    COALESCE(spread.ran, '{}')
FROM recent
LEFT JOIN spread USING (queue)
GROUP BY recent.queue, spread.waited, spread.ran;
