-- Names of the publications that contain pgqueue_jobs, by name, by schema, or by FOR ALL TABLES. Called by
-- tables.publications() of the doctor. Reads the catalogue only.
SELECT pubname::text
FROM pg_publication_tables
JOIN pg_class ON relname = tablename AND relnamespace = to_regnamespace(quote_ident(schemaname))
WHERE pg_class.oid = to_regclass('pgqueue_jobs')
ORDER BY pubname;
