-- What the catalogue has of the given tables, which are found along the search path: their columns, their indexes with
-- whether the planner may use them, their checks with whether they hold for every row; and the given functions. Called
-- by doctor. Reads the catalogue and memory, no table. An index that is just being built is not wrong.
-- Returns kind, table, name, and whether it is as it should be.
WITH present AS (
    SELECT class.oid, wanted.name
    FROM unnest(%(tables)s::text[]) AS wanted (name)
    JOIN pg_class AS class ON class.oid = to_regclass(quote_ident(wanted.name))
)
SELECT 'column', present.name, attribute.attname::text, true
FROM present
JOIN pg_attribute AS attribute ON attribute.attrelid = present.oid
WHERE attribute.attnum > 0 AND NOT attribute.attisdropped
UNION ALL
SELECT
    'index', present.name, class.relname::text,
    (index.indisvalid AND index.indisready)
    OR EXISTS (SELECT 1 FROM pg_stat_progress_create_index AS progress WHERE progress.index_relid = class.oid)
FROM present
JOIN pg_index AS index ON index.indrelid = present.oid
JOIN pg_class AS class ON class.oid = index.indexrelid
UNION ALL
SELECT 'check', present.name, rule.conname::text, rule.convalidated
FROM present
JOIN pg_constraint AS rule ON rule.conrelid = present.oid AND rule.contype = 'c'
UNION ALL
SELECT 'function', '', function.proname::text, true
FROM pg_proc AS function
WHERE function.proname = ANY (%(functions)s::name[]) AND pg_function_is_visible(function.oid);
