-- What belongs to the whole server and changes by transactions alone, as (kind, name, value). Called by database.py
-- where any has written since the last test.
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
UNION ALL SELECT 'subscription', subname::text, subenabled::text FROM pg_subscription
