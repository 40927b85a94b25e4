-- Note where queues begin, at each priority. Called by fairness._note_heads() while that is slow to find out, for
-- enqueue_keyed.sql and promote.sql, which look no further back. Waits only for sessions that note the same.
INSERT INTO pgqueue_queue_heads (queue, priority, run_at)
SELECT head.queue, -head.rank, head.run_at
FROM unnest(%(queues)s::text[], %(ranks)s::smallint[], %(run_ats)s::timestamptz[]) AS head (queue, rank, run_at)
ORDER BY head.queue, head.rank
ON CONFLICT (queue, priority) DO UPDATE SET run_at = EXCLUDED.run_at
RETURNING id;
