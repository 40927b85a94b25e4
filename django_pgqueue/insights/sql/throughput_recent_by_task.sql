-- What workers have done for each task in each queue in the last minutes and in the one that is not over: the tasks
-- that took most time, up to a limit. Called by insights.throughput. Reads that range of pgqueue_stats_minute once;
-- locks nothing. Returns queue and task, the sums, and how many jobs there are in each bucket of the time they waited
-- and of the time they ran.
WITH recent AS MATERIALIZED (
    SELECT
        stat.queue, stat.task, stat.succeeded, stat.failed, stat.retried, stat.died, stat.lost, stat.stale,
        stat.wait_seconds, stat.run_seconds, stat.wait_buckets, stat.run_buckets
    FROM pgqueue_stats AS stat
    WHERE stat.minute >= date_trunc('minute', COALESCE(%(now)s::timestamptz, statement_timestamp()))
            - make_interval(mins => %(minutes)s::integer)
      AND stat.minute <= COALESCE(%(now)s::timestamptz, statement_timestamp())
),
bucket AS MATERIALIZED (
    SELECT
        recent.queue, recent.task, bucket.place, sum(bucket.waited)::bigint AS waited, sum(bucket.ran)::bigint AS ran
    FROM recent
    CROSS JOIN unnest(recent.wait_buckets, recent.run_buckets) WITH ORDINALITY AS bucket (waited, ran, place)
    GROUP BY recent.queue, recent.task, bucket.place
),
spread AS MATERIALIZED (
    SELECT
        bucket.queue, bucket.task,
        array_agg(COALESCE(bucket.waited, 0) ORDER BY bucket.place) AS waited,
        array_agg(COALESCE(bucket.ran, 0) ORDER BY bucket.place) AS ran
    FROM bucket
    GROUP BY bucket.queue, bucket.task
)
SELECT
    recent.queue,
    recent.task,
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
LEFT JOIN spread USING (queue, task)
GROUP BY recent.queue, recent.task, spread.waited, spread.ran
ORDER BY sum(recent.run_seconds) DESC, recent.queue, recent.task
LIMIT %(limit)s::bigint;
