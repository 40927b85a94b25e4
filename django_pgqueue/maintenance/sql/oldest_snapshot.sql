-- The oldest snapshot or transaction that keeps VACUUM from removing rows of this database, and whose it is; no row
-- where there is none. Called by vacuum.oldest_snapshot(). Reads memory, no table, and needs no right but to see since
-- when others are at it. Standbys are sessions without a database. A VACUUM keeps no rows, even if pg_stat_activity
-- says of its snapshot. Of several with the same snapshot the transaction that began first. Returns the columns of
-- vacuum.SnapshotHolder.
WITH sessions AS (
    SELECT
        activity.pid,
        activity.backend_xmin,
        activity.backend_xid,
        'process ' || activity.pid || ' (' || activity.application_name || ')' AS holder,
        CASE WHEN activity.backend_type = 'walsender' THEN 'standby' ELSE 'session' END AS kind,
        activity.xact_start
    FROM pg_stat_activity AS activity
    WHERE activity.pid <> pg_backend_pid()
      AND (activity.datname IS NULL OR activity.datname = current_database())
),
holders AS (
    SELECT
        sessions.backend_xmin AS xid, sessions.holder, sessions.kind, sessions.pid::text AS handle,
        sessions.xact_start AS since
    FROM sessions
    WHERE sessions.pid NOT IN (SELECT progress.pid FROM pg_stat_progress_vacuum AS progress)
    UNION ALL
    SELECT sessions.backend_xid, sessions.holder, sessions.kind, sessions.pid::text, sessions.xact_start
    FROM sessions
    UNION ALL
    SELECT slot.xmin, 'replication slot ' || slot.slot_name, 'slot', slot.slot_name::text, NULL
    FROM pg_replication_slots AS slot
    UNION ALL
    SELECT prepared.transaction, 'prepared transaction ' || prepared.gid, 'prepared', prepared.gid, prepared.prepared
    FROM pg_prepared_xacts AS prepared
    WHERE prepared.database = current_database()
)
SELECT
    holders.xid::text, holders.holder, holders.kind, holders.handle,
    extract(epoch FROM clock_timestamp() - holders.since)::double precision
FROM holders
WHERE holders.xid IS NOT NULL
ORDER BY age(holders.xid) DESC, holders.since NULLS LAST
LIMIT 1;
