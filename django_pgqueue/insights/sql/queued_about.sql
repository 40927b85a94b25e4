-- How many jobs the planner believes to be queued in one queue. Called by insights.throughput where there are too many
-- to count. Reads only statistics, and locks nothing. Returns a plan as JSON.
EXPLAIN (FORMAT JSON)
SELECT FROM pgqueue_jobs AS job WHERE job.queue = %(queue)s::text AND job.status = 'queued';
