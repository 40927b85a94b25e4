-- Wait for no lock longer than this, to the end of the transaction. Called by maintenance.unique_keys before
-- reacquire_key.sql, and by doctor. Locks no row. Returns the setting.
SELECT set_config('lock_timeout', %(milliseconds)s::integer::text, true);
