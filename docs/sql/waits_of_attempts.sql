-- Bounds of the median and the 99th percentile of the wait of all attempts of the last hour, in seconds, from the counts
-- that workers write about every ten seconds. For run times, put run_buckets in place of wait_buckets.
-- Index: pgqueue_stats_minute
WITH counts AS (
    SELECT stat.queue, stat.task, bucket.number, sum(bucket.jobs) AS jobs
    FROM pgqueue_stats AS stat
    CROSS JOIN LATERAL unnest(stat.wait_buckets) WITH ORDINALITY AS bucket (jobs, number)
    WHERE stat.minute >= statement_timestamp() - interval '1 hour'
    GROUP BY stat.queue, stat.task, bucket.number
),
risen AS (
    SELECT
        counts.queue, counts.task,
        (ARRAY[
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
            1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 'Infinity'::float8
        ])[counts.number] AS seconds,
        sum(counts.jobs) OVER (PARTITION BY counts.queue, counts.task ORDER BY counts.number) AS so_far,
        sum(counts.jobs) OVER (PARTITION BY counts.queue, counts.task) AS attempts
    FROM counts
)
SELECT
    risen.queue,
    risen.task,
    risen.attempts,
    min(risen.seconds) FILTER (WHERE risen.so_far >= 0.5 * risen.attempts) AS half_waited_up_to,
    min(risen.seconds) FILTER (WHERE risen.so_far >= 0.99 * risen.attempts) AS p99_waited_up_to
FROM risen
WHERE risen.attempts > 0
GROUP BY risen.queue, risen.task, risen.attempts
ORDER BY p99_waited_up_to DESC;

--   queue  |          task           | attempts | half_waited_up_to | p99_waited_up_to
-- ---------+-------------------------+----------+-------------------+------------------
--  reports | shop.tasks.build_report |      118 |                30 |               60
--  emails  | shop.tasks.send_receipt |     1180 |              0.01 |               10
