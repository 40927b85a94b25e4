-- How many rows of pgqueue_jobs have died since the last VACUUM, how many live, how many VACUUMs there were, and when
-- the last ones were. Called by vacuum.look(). Reads counters in memory, no table. They lag: a session adds its own
-- when it is idle, at most once a second; and rows that die while VACUUM runs are missed.
SELECT
    pg_stat_get_dead_tuples(jobs.id),
    pg_stat_get_live_tuples(jobs.id),
    pg_stat_get_vacuum_count(jobs.id) + pg_stat_get_autovacuum_count(jobs.id),
    pg_stat_get_last_vacuum_time(jobs.id),
    pg_stat_get_last_autovacuum_time(jobs.id)
FROM (SELECT 'pgqueue_jobs'::regclass::oid AS id) AS jobs;
