-- What workers have done in each of the last stretches of time, the one that is not over included, of one queue or of
-- all. Called by insights.throughput. Reads for each stretch its range of pgqueue_stats_minute; locks nothing. Returns
-- the beginning of each stretch, also of those in which nothing was done, and the sums.
WITH stretch AS MATERIALIZED (
    SELECT
        date_bin(
            make_interval(mins => %(minutes)s::integer),
            COALESCE(%(now)s::timestamptz, statement_timestamp()),
            TIMESTAMPTZ 'epoch'
        ) - back.number * make_interval(mins => %(minutes)s::integer) AS begins_at
    FROM generate_series(0, %(number)s::integer - 1) AS back (number)
)
SELECT
    stretch.begins_at,
    COALESCE(sum(stat.succeeded), 0)::bigint,
    COALESCE(sum(stat.failed), 0)::bigint,
    COALESCE(sum(stat.retried), 0)::bigint,
    COALESCE(sum(stat.died), 0)::bigint,
    COALESCE(sum(stat.lost), 0)::bigint,
    COALESCE(sum(stat.stale), 0)::bigint,
    COALESCE(sum(stat.wait_seconds), 0),
    COALESCE(sum(stat.run_seconds), 0)
FROM stretch
LEFT JOIN pgqueue_stats AS stat
    ON stat.minute >= stretch.begins_at
    AND stat.minute < stretch.begins_at + make_interval(mins => %(minutes)s::integer)
    AND (%(queue)s::text IS NULL OR stat.queue = %(queue)s::text)
GROUP BY stretch.begins_at
ORDER BY stretch.begins_at;
