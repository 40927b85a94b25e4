-- Add counts to those of each minute, queue and task. Called by stats.add_counts(), with a limit to how
-- long it may wait: another session that adds to the same rows is through in a moment. The rows come in the order of
-- their keys, so two sessions cannot deadlock. Leans on pgqueue_stats_minute. Buckets are added one by one; one that is
-- missing at the end of an array is zero. Returns for each row the server's clock.
INSERT INTO pgqueue_stats AS stat
    (minute, queue, task, succeeded, failed, retried, died, lost, stale, wait_seconds, run_seconds, wait_buckets,
    run_buckets)
SELECT to_timestamp(60 * counted.minute), counted.queue, counted.task, counted.succeeded, counted.failed, counted.retried,
    counted.died, counted.lost, counted.stale, counted.wait_seconds, counted.run_seconds,
    counted.wait_buckets::integer[], counted.run_buckets::integer[]
FROM unnest(
    %(minutes)s::bigint[], %(queues)s::text[], %(tasks)s::text[], %(succeeded)s::bigint[], %(failed)s::bigint[],
    %(retried)s::bigint[], %(died)s::bigint[], %(lost)s::bigint[], %(stale)s::bigint[],
    %(wait_seconds)s::double precision[], %(run_seconds)s::double precision[], %(wait_buckets)s::text[],
    %(run_buckets)s::text[]
) AS counted (
    minute, queue, task, succeeded, failed, retried, died, lost, stale, wait_seconds, run_seconds, wait_buckets,
    run_buckets
)
ON CONFLICT (minute, queue, task) DO UPDATE
SET succeeded = stat.succeeded + excluded.succeeded,
    failed = stat.failed + excluded.failed,
    retried = stat.retried + excluded.retried,
    died = stat.died + excluded.died,
    lost = stat.lost + excluded.lost,
    stale = stat.stale + excluded.stale,
    wait_seconds = stat.wait_seconds + excluded.wait_seconds,
    run_seconds = stat.run_seconds + excluded.run_seconds,
    wait_buckets = ARRAY(
        SELECT COALESCE(bucket.number, 0) + COALESCE(bucket.more, 0)
        FROM unnest(stat.wait_buckets, excluded.wait_buckets) WITH ORDINALITY AS bucket (number, more, place)
        ORDER BY bucket.place
    ),
    run_buckets = ARRAY(
        SELECT COALESCE(bucket.number, 0) + COALESCE(bucket.more, 0)
        FROM unnest(stat.run_buckets, excluded.run_buckets) WITH ORDINALITY AS bucket (number, more, place)
        ORDER BY bucket.place
    )
RETURNING date_part('epoch', statement_timestamp());
