-- All that the schema of a database is, as (kind, name, value). Called by database.py when the fingerprint has changed.
-- A build of PostgreSQL 15 gives each column that is made an option pg_attver, a number that is another each time.
WITH space AS (
    SELECT oid, nspname, nspowner, nspacl
    FROM pg_namespace
    WHERE (nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema') OR oid = pg_my_temp_schema()
),
relation AS (
    SELECT c.*, space.nspname || '.' || c.relname AS name
    FROM pg_class AS c JOIN space ON space.oid = c.relnamespace
    WHERE c.relkind <> 't'
)
SELECT 'schema', nspname::text, concat_ws(' ', pg_get_userbyid(nspowner), nspacl) FROM space
UNION ALL SELECT 'relation', name, concat_ws(
    ' ', relkind, relpersistence, relrowsecurity, relforcerowsecurity, relreplident, pg_get_expr(relpartbound, oid)
) FROM relation WHERE relkind NOT IN ('i', 'I')
UNION ALL SELECT 'storage options', name, reloptions::text FROM relation WHERE reloptions IS NOT NULL
UNION ALL SELECT 'owner', name, pg_get_userbyid(relowner) FROM relation WHERE relkind NOT IN ('i', 'I')
UNION ALL SELECT 'grants', name, (
    SELECT string_agg(acl::text, ' ' ORDER BY acl::text)
    FROM unnest(COALESCE(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner))) AS acl
) FROM relation WHERE relkind NOT IN ('i', 'I')
UNION ALL SELECT 'partition', relation.name, inhparent::regclass::text
    FROM pg_inherits JOIN relation ON relation.oid = inhrelid
UNION ALL SELECT 'column', relation.name || '.' || attname, concat_ws(
    ' ', format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'NOT NULL' END, attidentity, attgenerated,
    attstorage, attcompression, attacl,
    ARRAY(SELECT option FROM unnest(attoptions) AS option WHERE option NOT LIKE 'pg\_attver=%')
) FROM pg_attribute JOIN relation ON relation.oid = attrelid
    WHERE attnum > 0 AND NOT attisdropped AND relation.relkind NOT IN ('i', 'I', 'S')
UNION ALL SELECT 'default', relation.name || '.' || attname, pg_get_expr(adbin, adrelid)
    FROM pg_attrdef JOIN relation ON relation.oid = adrelid
    JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
UNION ALL SELECT 'index', relation.name, pg_get_indexdef(indexrelid) || CASE WHEN indisvalid THEN '' ELSE ' invalid' END
    FROM pg_index JOIN relation ON relation.oid = indexrelid
UNION ALL SELECT 'constraint', relation.name || ' ' || conname, pg_get_constraintdef(pg_constraint.oid)
    FROM pg_constraint JOIN relation ON relation.oid = conrelid
UNION ALL SELECT 'trigger', relation.name || ' ' || tgname, concat_ws(' ', pg_get_triggerdef(pg_trigger.oid), tgenabled)
    FROM pg_trigger JOIN relation ON relation.oid = tgrelid WHERE NOT tgisinternal
UNION ALL SELECT 'rule', relation.name || ' ' || rulename, pg_get_ruledef(pg_rewrite.oid)
    FROM pg_rewrite JOIN relation ON relation.oid = ev_class
UNION ALL SELECT 'policy', relation.name || ' ' || polname, concat_ws(
    ' ', polcmd, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)
) FROM pg_policy JOIN relation ON relation.oid = polrelid
UNION ALL SELECT 'function', pg_proc.oid::regprocedure::text, concat_ws(
    ' ', pg_get_userbyid(proowner), proacl, provolatile, proconfig, md5(prosrc)
) FROM pg_proc JOIN space ON space.oid = pronamespace
UNION ALL SELECT 'type', space.nspname || '.' || typname, concat_ws(' ', typtype, pg_get_userbyid(typowner), typacl)
    FROM pg_type JOIN space ON space.oid = typnamespace WHERE typtype IN ('d', 'e', 'r', 'm')
UNION ALL SELECT 'extension', extname::text, extversion FROM pg_extension
UNION ALL SELECT 'publication', pubname::text, concat_ws(' ', puballtables, pubinsert, pubupdate, pubdelete)
    FROM pg_publication
UNION ALL SELECT 'event trigger', evtname::text, concat_ws(' ', evtevent, evtenabled) FROM pg_event_trigger
UNION ALL SELECT 'statistics object', space.nspname || '.' || stxname, stxkind::text
    FROM pg_statistic_ext JOIN space ON space.oid = stxnamespace
UNION ALL SELECT 'default privileges', concat_ws(' ', pg_get_userbyid(defaclrole), defaclobjtype), defaclacl::text
    FROM pg_default_acl
