-- Sessions but those that are given, and what belongs to the whole server and changes without a transaction, as (kind,
-- name, value). Called by database.py after each test. The last statement of a session that listens is most often that
-- it does.
WITH other AS MATERIALIZED (
    SELECT pid, backend_type, usename, datname, application_name, query, xact_start
    FROM pg_stat_activity
    WHERE backend_type IN ('client backend', 'walsender') AND pid <> ALL(%(own)s)
)
SELECT 'session', pid::text, concat_ws(' ', backend_type, 'of', usename, 'on', datname, application_name) FROM other
UNION ALL SELECT 'listener', pid::text, query FROM other WHERE query ILIKE 'LISTEN %%'
UNION ALL SELECT 'open transaction', pid::text, left(query, 100)
    FROM other WHERE xact_start IS NOT NULL AND backend_type = 'client backend'
UNION ALL SELECT 'replication slot', slot_name::text, slot_type FROM pg_replication_slots
UNION ALL SELECT 'prepared transaction', gid, database::text FROM pg_prepared_xacts
UNION ALL SELECT 'advisory lock', concat_ws(' ', classid, objid, objsubid), concat_ws(' ', 'of', pid, mode)
    FROM pg_locks WHERE locktype = 'advisory' AND granted
UNION ALL SELECT 'server setting', name, setting FROM pg_settings
    WHERE source IN ('configuration file', 'global', 'database', 'user', 'database user')
UNION ALL SELECT 'line of postgresql.auto.conf', name, setting
    FROM pg_file_settings WHERE sourcefile LIKE '%%postgresql.auto.conf'
