-- Whether another session vacuums pgqueue_jobs, or alters it in a way that VACUUM has to wait for. Called by
-- vacuum._is_free(), so that a VACUUM that would step back is not begun: each leaves a warning in the server's log.
SELECT EXISTS (
    SELECT
    FROM pg_locks AS held
    JOIN pg_database AS here ON here.oid = held.database
    WHERE here.datname = current_database()
      AND held.locktype = 'relation'
      AND held.relation = 'pgqueue_jobs'::regclass
      AND held.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
);
