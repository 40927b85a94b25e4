-- Queues that are paused or limited.
SELECT
    queue.name AS queue,
    date_trunc('second', statement_timestamp() - queue.paused_at) AS paused_for,
    queue.paused_by,
    queue.pause_reason,
    date_trunc('second', queue.resume_at - statement_timestamp()) AS resumes_in,
    queue.max_running,
    queue.rate_limit || ' in ' || queue.rate_period_seconds || ' s' AS rate
FROM pgqueue_queues AS queue
WHERE queue.paused_at IS NOT NULL OR queue.max_running IS NOT NULL OR queue.rate_limit IS NOT NULL
ORDER BY queue.name;

--   queue  | paused_for | paused_by |     pause_reason     | resumes_in | max_running | rate
-- ---------+------------+-----------+----------------------+------------+-------------+------
--  imports | 00:26:00   | ann       | the provider is down | 01:33:59   |             |
--  reports |            |           |                      |            |           2 |
