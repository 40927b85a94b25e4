-- What workers have done in each of the last stretches of time, of one queue or of all: in all of them together, or in
-- each queue. The last stretch is not over. Called by insights.throughput. Reads one range of pgqueue_stats_minute once;
-- locks nothing. Returns the beginning of the stretch in UTC, the queue, and the sums; and the beginning of each stretch
-- once with zeros and without a queue, also of those in which nothing was done.
WITH span AS MATERIALIZED (
    SELECT
        date_bin(
            make_interval(mins => %(minutes)s::integer),
            COALESCE(%(now)s::timestamptz, statement_timestamp()),
            TIMESTAMPTZ 'epoch'
        ) - (%(number)s::integer - 1) * make_interval(mins => %(minutes)s::integer) AS begins_at
)
SELECT
    date_bin(make_interval(mins => %(minutes)s::integer), stat.minute, (SELECT span.begins_at FROM span))
        AT TIME ZONE 'UTC' AS begins_at,
    CASE WHEN %(by_queue)s::boolean THEN stat.queue END AS queue,
    sum(stat.succeeded)::bigint,
    sum(stat.failed)::bigint,
    sum(stat.retried)::bigint,
    sum(stat.died)::bigint,
    sum(stat.lost)::bigint,
    sum(stat.stale)::bigint,
    sum(stat.wait_seconds),
    sum(stat.run_seconds)
FROM pgqueue_stats AS stat
WHERE stat.minute >= (SELECT span.begins_at FROM span)
  AND stat.minute < (SELECT span.begins_at FROM span) + %(number)s::integer * make_interval(mins => %(minutes)s::integer)
  AND (%(queue)s::text IS NULL OR stat.queue = %(queue)s::text)
GROUP BY 1, 2
UNION ALL
SELECT
    (span.begins_at + past.number * make_interval(mins => %(minutes)s::integer)) AT TIME ZONE 'UTC',
    NULL, 0, 0, 0, 0, 0, 0, 0, 0
FROM span, generate_series(0, %(number)s::integer - 1) AS past (number);
