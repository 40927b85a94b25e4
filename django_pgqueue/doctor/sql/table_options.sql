-- How the tables of jobs are stored and cared for: the storage options of pgqueue_jobs, whether the server runs
-- autovacuum at all, and about how many rows lie in the default partition of succeeded jobs. Called by doctor.
-- Reads the catalogue and counters in memory, no table.
SELECT
    COALESCE(jobs.reloptions, '{}'),
    current_setting('autovacuum') = 'on',
    (
        SELECT GREATEST(pg_stat_get_live_tuples(part.oid), part.reltuples::bigint, 0)
        FROM pg_class AS part
        WHERE part.oid = to_regclass('pgqueue_succeeded_jobs_default')
    )
FROM pg_class AS jobs
WHERE jobs.oid = 'pgqueue_jobs'::regclass;
