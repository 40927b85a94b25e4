-- The partitions of succeeded_jobs with their bounds, the default one first. Called by partitions.plan(). Reads the
-- catalogue and opens no partition, so it waits for no lock. Bounds are given in the session's time zone, and read in
-- it. Returns the columns of partitions.Partition.
SELECT
    space.nspname::text,
    part.relname::text,
    bound.words = 'DEFAULT',
    (bound.instants)[1]::timestamptz,
    (bound.instants)[2]::timestamptz AS ends_at
FROM pg_inherits AS link
JOIN pg_class AS part ON part.oid = link.inhrelid
JOIN pg_namespace AS space ON space.oid = part.relnamespace
CROSS JOIN LATERAL (
    SELECT told.words, regexp_match(told.words, '^FOR VALUES FROM \(''([^'']+)''\) TO \(''([^'']+)''\)$') AS instants
    FROM (SELECT pg_get_expr(part.relpartbound, part.oid)) AS told (words)
) AS bound
WHERE link.inhparent = 'pgqueue_succeeded_jobs'::regclass
ORDER BY ends_at NULLS FIRST, part.relname;
