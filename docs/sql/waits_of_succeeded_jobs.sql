-- How long did jobs wait and run that succeeded within the last hour, in seconds, of the latest 10,000 that are kept.
SELECT
    done.queue,
    done.task,
    count(*) AS jobs,
    round(percentile_cont(0.5) WITHIN GROUP (ORDER BY done.waited)::numeric, 3) AS waited_median,
    round(percentile_cont(0.99) WITHIN GROUP (ORDER BY done.waited)::numeric, 3) AS waited_p99,
    round(percentile_cont(0.99) WITHIN GROUP (ORDER BY done.run_seconds)::numeric, 3) AS ran_p99
FROM (
    SELECT
        job.queue, job.task, job.succeeded_at, job.run_seconds,
        extract(epoch FROM job.started_at - GREATEST(job.run_at, job.enqueued_at)) AS waited
    FROM pgqueue_succeeded_jobs AS job
    ORDER BY job.id DESC
    LIMIT 10000
) AS done
WHERE done.succeeded_at > statement_timestamp() - interval '1 hour'
GROUP BY done.queue, done.task
ORDER BY waited_p99 DESC;

--  queue  |          task           | jobs | waited_median | waited_p99 | ran_p99
-- --------+-------------------------+------+---------------+------------+---------
--  emails | shop.tasks.send_receipt |  100 |         0.505 |      1.380 |   0.200
