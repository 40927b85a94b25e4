-- Size and use of the indexes of pgqueue_jobs. One that stays large while the table is empty is rebuilt, without blocking
-- other sessions, by: REINDEX INDEX CONCURRENTLY pgqueue_jobs_claim
SELECT
    stat.indexrelname AS index,
    pg_size_pretty(pg_relation_size(stat.indexrelid)) AS size,
    stat.idx_scan AS scans,
    stat.idx_tup_read / GREATEST(stat.idx_scan, 1) AS entries_a_scan
FROM pg_stat_user_indexes AS stat
WHERE stat.relid = 'pgqueue_jobs'::regclass
ORDER BY pg_relation_size(stat.indexrelid) DESC, stat.indexrelname;

--         index         |    size    | scans | entries_a_scan
-- ----------------------+------------+-------+----------------
--  pgqueue_jobs_claim   | 5880 kB    |    72 |           1683
--  pgqueue_jobs_pkey    | 2928 kB    |     0 |              0
--  pgqueue_jobs_fair    | 600 kB     |     0 |              0
--  pgqueue_jobs_running | 400 kB     |    30 |              3
--  pgqueue_jobs_due     | 16 kB      |     6 |              6
--  pgqueue_jobs_slot    | 16 kB      |    12 |              1
--  pgqueue_jobs_limited | 16 kB      |    36 |              3
--  pgqueue_jobs_expiry  | 8192 bytes |     0 |              0
--  pgqueue_jobs_started | 8192 bytes |     0 |              0
--  pgqueue_jobs_unique  | 8192 bytes |     0 |              0
