-- Sessions, replication slots, prepared transactions and standbys that hold back VACUUM, the worst first; xids is the
-- number of transactions that have begun since.
SELECT holder.kind, holder.who, holder.begun, age(holder.xid) AS xids, holder.doing
FROM (
    SELECT
        CASE WHEN session.backend_type = 'walsender' THEN 'standby' ELSE 'session' END AS kind,
        format('pid %s, %s, %s', session.pid, session.usename, session.application_name) AS who,
        date_trunc('second', statement_timestamp() - session.xact_start) AS begun,
        held.xid,
        concat_ws(': ', session.state, left(session.query, 60)) AS doing
    FROM pg_stat_activity AS session
    CROSS JOIN LATERAL (VALUES (session.backend_xmin), (session.backend_xid)) AS held (xid)
    WHERE session.pid <> pg_backend_pid()
      AND (session.datname IS NULL OR session.datname = current_database())
      AND session.pid NOT IN (SELECT running.pid FROM pg_stat_progress_vacuum AS running)
    UNION ALL
    SELECT
        'replication slot', slot.slot_name::text, NULL, slot.xmin,
        CASE WHEN slot.active THEN 'active' ELSE 'without a reader' END
    FROM pg_replication_slots AS slot
    UNION ALL
    SELECT
        'prepared transaction', format('%s, %s', prepared.gid, prepared.owner),
        date_trunc('second', statement_timestamp() - prepared.prepared), prepared.transaction, 'COMMIT PREPARED awaited'
    FROM pg_prepared_xacts AS prepared
    WHERE prepared.database = current_database()
) AS holder
WHERE holder.xid IS NOT NULL
ORDER BY age(holder.xid) DESC
LIMIT 10;

--          kind         |                 who                 |  begun   | xids |                       doing
-- ----------------------+-------------------------------------+----------+------+----------------------------------------------------
--  session              | pid 20508, postgres, nightly export | 00:00:04 |  322 | idle in transaction: SELECT count(*) FROM pg_class
--  replication slot     | replica                             |          |   21 | active
--  prepared transaction | bank transfer 4711, postgres        | 00:00:04 |   21 | COMMIT PREPARED awaited
