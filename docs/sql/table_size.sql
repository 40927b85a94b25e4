-- Live and dead rows of pgqueue_jobs, its size, and its VACUUMs.
SELECT
    stat.n_live_tup AS live,
    stat.n_dead_tup AS dead,
    pg_size_pretty(pg_relation_size(stat.relid)) AS heap,
    pg_size_pretty(pg_indexes_size(stat.relid)) AS indexes,
    pg_relation_size(stat.relid) / GREATEST(stat.n_live_tup, 1) AS bytes_a_row,
    round(100.0 * stat.n_tup_hot_upd / NULLIF(stat.n_tup_upd, 0)) AS hot_percent,
    date_trunc('second', statement_timestamp() - GREATEST(stat.last_vacuum, stat.last_autovacuum)) AS last_vacuum,
    stat.vacuum_count + stat.autovacuum_count AS vacuums
FROM pg_stat_user_tables AS stat
WHERE stat.relid = 'pgqueue_jobs'::regclass;

--  live  |  dead  | heap  | indexes | bytes_a_row | hot_percent | last_vacuum | vacuums
-- -------+--------+-------+---------+-------------+-------------+-------------+---------
--  12120 | 120000 | 24 MB | 9880 kB |        2100 |           0 | 00:00:02    |       5
