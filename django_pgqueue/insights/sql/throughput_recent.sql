-- What workers have done in each queue in the last minutes and, unless ``only_full_minutes``, in the one that is not
-- over, or for each task in each queue: those that took most time first, up to a limit (NULL: all). Called by
-- insights.throughput. Reads that range of pgqueue_stats_minute once; locks nothing. Returns queue and task (an empty
-- text where it is by queue), the sums, and how many jobs there are in each bucket of the time they waited and of the
-- time they ran; nothing for queues and tasks for which nothing was done.
WITH recent AS MATERIALIZED (
    SELECT
        stat.queue, CASE WHEN %(by_task)s::boolean THEN stat.task ELSE '' END AS task, stat.succeeded, stat.failed,
        stat.retried, stat.died, stat.lost, stat.stale, stat.wait_seconds, stat.run_seconds, stat.wait_buckets,
        stat.run_buckets
    FROM pgqueue_stats AS stat
    WHERE stat.minute >= date_trunc('minute', COALESCE(%(now)s::timestamptz, statement_timestamp()))
            - make_interval(mins => %(minutes)s::integer)
      AND stat.minute <= COALESCE(%(now)s::timestamptz, statement_timestamp())
      AND (
          NOT %(only_full_minutes)s::boolean
          OR stat.minute < date_trunc('minute', COALESCE(%(now)s::timestamptz, statement_timestamp()))
      )
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
),
total AS MATERIALIZED (
    SELECT
        recent.queue,
        recent.task,
        sum(recent.succeeded)::bigint AS succeeded,
        sum(recent.failed)::bigint AS failed,
        sum(recent.retried)::bigint AS retried,
        sum(recent.died)::bigint AS died,
        sum(recent.lost)::bigint AS lost,
        sum(recent.stale)::bigint AS stale,
        sum(recent.wait_seconds) AS wait_seconds,
        sum(recent.run_seconds) AS run_seconds
    FROM recent
    GROUP BY recent.queue, recent.task
    ORDER BY sum(recent.run_seconds) DESC, recent.queue, recent.task
    LIMIT %(limit)s::bigint
)
SELECT
    total.queue, total.task, total.succeeded, total.failed, total.retried, total.died, total.lost, total.stale,
    total.wait_seconds, total.run_seconds, COALESCE(spread.waited, '{}'), COALESCE(spread.ran, '{}')
FROM total
LEFT JOIN spread USING (queue, task)
ORDER BY total.run_seconds DESC, total.queue, total.task;
