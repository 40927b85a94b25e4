-- What belongs to the whole server, and its sessions but those that are given, as (kind, name, value).
-- Called by database.py after each test. The last statement of a session that listens is most often that it does.
SELECT 'database', datname::text, concat_ws(' ', pg_get_userbyid(datdba), datconnlimit, datallowconn, datacl)
FROM pg_database
UNION ALL SELECT 'role', rolname::text, concat_ws(
    ' ', rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls, rolconnlimit,
    rolvaliduntil
) FROM pg_roles
UNION ALL SELECT 'membership', pg_get_userbyid(member) || ' in ' || pg_get_userbyid(roleid), admin_option::text
    FROM pg_auth_members
UNION ALL SELECT 'setting of a role or database', concat_ws(
    ' in ', pg_roles.rolname, COALESCE(datname, 'all databases')
), setconfig::text
    FROM pg_db_role_setting
    LEFT JOIN pg_roles ON pg_roles.oid = setrole LEFT JOIN pg_database ON pg_database.oid = setdatabase
UNION ALL SELECT 'tablespace', spcname::text, concat_ws(' ', spcacl, spcoptions) FROM pg_tablespace
UNION ALL SELECT 'replication slot', slot_name::text, slot_type FROM pg_replication_slots
UNION ALL SELECT 'subscription', subname::text, subenabled::text FROM pg_subscription
UNION ALL SELECT 'prepared transaction', gid, database::text FROM pg_prepared_xacts
UNION ALL SELECT 'session', pid::text, concat_ws(' ', backend_type, 'of', usename, 'on', datname, application_name)
    FROM pg_stat_activity
    WHERE backend_type IN ('client backend', 'walsender') AND pid <> ALL(%(own)s)
UNION ALL SELECT 'listener', pid::text, query
    FROM pg_stat_activity WHERE query ILIKE 'LISTEN %%' AND pid <> ALL(%(own)s)
UNION ALL SELECT 'open transaction', pid::text, left(query, 100)
    FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> ALL(%(own)s)
UNION ALL SELECT 'advisory lock', concat_ws(' ', classid, objid, objsubid), concat_ws(' ', 'of', pid, mode)
    FROM pg_locks WHERE locktype = 'advisory' AND granted
UNION ALL SELECT 'server setting', name, setting FROM pg_settings
    WHERE source IN ('configuration file', 'global', 'database', 'user', 'database user')
UNION ALL SELECT 'line of postgresql.auto.conf', name, setting
    FROM pg_file_settings WHERE sourcefile LIKE '%%postgresql.auto.conf'
