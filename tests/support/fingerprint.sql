-- A short text that is another once the schema of a database has changed. Called by database.py after each test.
-- A row that is changed gets the number of the transaction. Truncating writes rows of pg_class anew: they are compared.
SELECT concat_ws(
    ' ',
    (SELECT sum(hashtext(concat_ws(
        ' ', oid, relname, relnamespace, relowner, relkind, relpersistence, relrowsecurity, relforcerowsecurity,
        relreplident, relispartition, relacl, reloptions
    ))::bigint) FROM pg_class WHERE oid >= 16384),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_attribute WHERE attrelid >= 16384 AND attnum > 0),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_attrdef),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_index),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_constraint),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_trigger),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_rewrite),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_policy),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_inherits),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_proc WHERE oid >= 16384),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_namespace),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_extension),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_publication),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_event_trigger),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_statistic_ext),
    (SELECT concat_ws('/', count(*), max(xmin::text::bigint)) FROM pg_default_acl)
)
