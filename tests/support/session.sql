-- What a session of Django's own keeps until it ends, as (kind, name, value). Called by database.py after each test.
SELECT 'session setting', name, setting FROM pg_settings WHERE source = 'session'
UNION ALL SELECT 'LISTEN', channel, '' FROM pg_listening_channels() AS channel
UNION ALL SELECT 'cursor', name, '' FROM pg_cursors WHERE is_holdable
UNION ALL SELECT 'prepared statement', name, left(statement, 100) FROM pg_prepared_statements WHERE from_sql
