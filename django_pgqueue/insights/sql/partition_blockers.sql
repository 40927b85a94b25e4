-- Blockers of partitions that must be made or dropped: sessions that have used pgqueue_succeeded_jobs in a
-- transaction that is still open, and older than a second. Called by insights.retention. Locks nothing. Returns pid,
-- name of the application, and for how many seconds; null where this role may not know.
SELECT DISTINCT
    held.pid,
    activity.application_name,
    extract(epoch FROM clock_timestamp() - activity.xact_start)::double precision
FROM pg_locks AS held
JOIN pg_stat_activity AS activity ON activity.pid = held.pid
JOIN pg_database AS here ON here.oid = held.database
WHERE here.datname = current_database()
  AND held.locktype = 'relation'
  AND held.relation = 'pgqueue_succeeded_jobs'::regclass
  AND held.granted
  AND held.pid <> pg_backend_pid()
  AND (activity.xact_start IS NULL OR activity.xact_start < clock_timestamp() - INTERVAL '1 second')
ORDER BY held.pid;
