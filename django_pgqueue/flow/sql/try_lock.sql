-- Lock names of one kind without waiting, to the end of the transaction. Called by concurrency.try_lock(). The names
-- got are left in a setting of the transaction, for the next statement: that one's snapshot is younger than the locks,
-- and sees all that the last holders have committed. In one statement two could both succeed, by snapshots older than
-- their locks. Locks no row. Returns one row, with the names got as a JSON array.
SELECT set_config('pgqueue.admitting', COALESCE(jsonb_agg(wanted.name), '[]')::text, true)::jsonb
FROM unnest(%(names)s::text[]) AS wanted (name)
WHERE pg_try_advisory_xact_lock(hashtextextended('pgqueue ' || %(kind)s::text || ' ' || wanted.name, 0));
