-- Partitions of the succeeded jobs. Rows in pgqueue_succeeded_jobs_default mean that no worker was there in time to make a
-- partition.
SELECT
    part.relname AS partition,
    CASE bound.words
        WHEN 'DEFAULT' THEN 'what fits nowhere else'
        ELSE regexp_replace(bound.words, '^FOR VALUES FROM \(''(.*)''\) TO \(''(.*)''\)$', '\1 to \2')
    END AS holds,
    GREATEST(pg_stat_get_live_tuples(part.oid), part.reltuples::bigint, 0) AS rows,
    pg_size_pretty(pg_total_relation_size(part.oid)) AS size
FROM pg_inherits AS link
JOIN pg_class AS part ON part.oid = link.inhrelid
CROSS JOIN LATERAL (SELECT pg_get_expr(part.relpartbound, part.oid)) AS bound (words)
WHERE link.inhparent = 'pgqueue_succeeded_jobs'::regclass
ORDER BY part.relname;

--             partition            |                      holds                       | rows | size
-- ---------------------------------+--------------------------------------------------+------+-------
--  pgqueue_succeeded_jobs_20261122 | 2026-11-22 00:00:00+00 to 2026-11-23 00:00:00+00 |  202 | 88 kB
--  pgqueue_succeeded_jobs_20261123 | 2026-11-23 00:00:00+00 to 2026-11-24 00:00:00+00 |    0 | 32 kB
--  pgqueue_succeeded_jobs_20261124 | 2026-11-24 00:00:00+00 to 2026-11-25 00:00:00+00 |    0 | 32 kB
--  pgqueue_succeeded_jobs_20261125 | 2026-11-25 00:00:00+00 to 2026-11-26 00:00:00+00 |    0 | 32 kB
--  pgqueue_succeeded_jobs_20261126 | 2026-11-26 00:00:00+00 to 2026-11-27 00:00:00+00 |    0 | 32 kB
--  pgqueue_succeeded_jobs_20261127 | 2026-11-27 00:00:00+00 to 2026-11-28 00:00:00+00 |    0 | 32 kB
--  pgqueue_succeeded_jobs_20261128 | 2026-11-28 00:00:00+00 to 2026-11-29 00:00:00+00 |    0 | 32 kB
--  pgqueue_succeeded_jobs_20261129 | 2026-11-29 00:00:00+00 to 2026-11-30 00:00:00+00 |    0 | 32 kB
--  pgqueue_succeeded_jobs_default  | what fits nowhere else                           |    0 | 32 kB
