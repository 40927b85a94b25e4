-- Add what was counted to the counts of each minute, queue and task. Called by stats.add(), with a limit to how long it
-- may wait: whoever adds to the same rows is through in a moment. The rows come in the order of their keys, so two who
-- add cannot wait for each other. Leans on pgqueue_stats_minute. Returns for each row the server's clock.
INSERT INTO pgqueue_stats AS stat
    (minute, queue, task, succeeded, failed, retried, died, lost, wait_seconds, run_seconds)
SELECT to_timestamp(60 * counted.minute), counted.queue, counted.task, counted.succeeded, counted.failed, counted.retried,
    counted.died, counted.lost, counted.wait_seconds, counted.run_seconds
FROM unnest(
    %(minutes)s::bigint[], %(queues)s::text[], %(tasks)s::text[], %(succeeded)s::bigint[], %(failed)s::bigint[],
    %(retried)s::bigint[], %(died)s::bigint[], %(lost)s::bigint[], %(wait_seconds)s::double precision[],
    %(run_seconds)s::double precision[]
) AS counted (minute, queue, task, succeeded, failed, retried, died, lost, wait_seconds, run_seconds)
ON CONFLICT (minute, queue, task) DO UPDATE
SET succeeded = stat.succeeded + excluded.succeeded,
    failed = stat.failed + excluded.failed,
    retried = stat.retried + excluded.retried,
    died = stat.died + excluded.died,
    lost = stat.lost + excluded.lost,
    wait_seconds = stat.wait_seconds + excluded.wait_seconds,
    run_seconds = stat.run_seconds + excluded.run_seconds
RETURNING date_part('epoch', statement_timestamp());
