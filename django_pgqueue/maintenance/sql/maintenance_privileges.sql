-- What the role may do that takes more than to run jobs: VACUUM pgqueue_jobs, as owner of the table or database or,
-- from PostgreSQL 17 on, by MAINTAIN; make and drop partitions, as owner of pgqueue_succeeded_jobs; and lock and remove
-- dead jobs. Called by vacuum.privileges(), because VACUUM itself only warns. No row where the tables are not there.
SELECT
    pg_has_role(jobs.relowner, 'USAGE')
    OR pg_has_role(here.datdba, 'USAGE')
    OR CASE
        WHEN current_setting('server_version_num')::integer >= 170000 THEN has_table_privilege(jobs.oid, 'MAINTAIN')
        ELSE false
    END,
    pg_has_role(succeeded.relowner, 'USAGE'),
    has_table_privilege(dead.oid, 'UPDATE') AND has_table_privilege(dead.oid, 'DELETE')
FROM pg_class AS jobs
JOIN pg_class AS succeeded ON succeeded.oid = to_regclass('pgqueue_succeeded_jobs')
JOIN pg_class AS dead ON dead.oid = to_regclass('pgqueue_dead_jobs')
JOIN pg_database AS here ON here.datname = current_database()
WHERE jobs.oid = to_regclass('pgqueue_jobs');
