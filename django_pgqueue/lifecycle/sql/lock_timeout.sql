-- Wait for no lock longer than this, to the end of the transaction. Called by housekeeping.unique before retake.sql,
-- and by staff.health. Locks no row. Returns the setting.
SELECT set_config('lock_timeout', %(milliseconds)s::integer::text, true);
