-- The tables that have a file with something in it, which may be dead rows alone. Called by database.py after each
-- test.
SELECT pg_class.oid::regclass::text
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relkind = 'r' AND (nspname NOT LIKE 'pg\_%' OR relnamespace = pg_my_temp_schema())
    AND nspname <> 'information_schema' AND pg_relation_size(pg_class.oid) > 0
