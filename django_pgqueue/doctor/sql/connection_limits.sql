-- By each limit on the sessions of the workers' role: how many it allows, how many count towards it now, how many of
-- these are the workers' own, and how many may be their threads' (same role, this database). The role is the one whose
-- sessions bear the names of workers, or else the one that asks; the session that asks is left out. Called by
-- doctor. Reads memory and the catalogue of roles, and needs no right to see other sessions.
WITH sessions AS (
    SELECT
        activity.usename,
        activity.datname = current_database() AS is_here,
        activity.datname = current_database() AND starts_with(activity.application_name, 'pgqueue ') AS is_workers
    FROM pg_stat_activity AS activity
    WHERE activity.datid IS NOT NULL AND activity.usesysid IS NOT NULL AND activity.pid <> pg_backend_pid()
),
worker AS (
    SELECT role.oid, role.rolname, role.rolsuper, role.rolconnlimit
    FROM pg_roles AS role
    WHERE role.rolname = COALESCE(
        (
            SELECT sessions.usename
            FROM sessions
            WHERE sessions.is_workers
            GROUP BY sessions.usename
            ORDER BY count(*) DESC
            LIMIT 1
        ),
        session_user
    )
),
limits AS (
    SELECT
        'server' AS kind,
        'max_connections' AS name,
        current_setting('max_connections')::integer
        - CASE WHEN worker.rolsuper THEN 0 ELSE current_setting('superuser_reserved_connections')::integer END
        - CASE
            WHEN worker.rolsuper
                OR COALESCE(pg_has_role(worker.oid, to_regrole('pg_use_reserved_connections'), 'USAGE'), false) THEN 0
            ELSE COALESCE(current_setting('reserved_connections', true)::integer, 0)
        END AS most
    FROM worker
    UNION ALL
    SELECT 'role', worker.rolname::text, worker.rolconnlimit
    FROM worker
    WHERE worker.rolconnlimit >= 0 AND NOT worker.rolsuper
    UNION ALL
    SELECT 'database', here.datname::text, here.datconnlimit
    FROM worker
    JOIN pg_database AS here ON here.datname = current_database()
    WHERE here.datconnlimit >= 0 AND NOT worker.rolsuper
)
SELECT
    limits.kind,
    limits.name,
    limits.most,
    count(*) FILTER (
        WHERE limits.kind = 'server' AND sessions.usename IS NOT NULL
           OR limits.kind = 'role' AND sessions.usename = worker.rolname
           OR limits.kind = 'database' AND sessions.is_here
    ),
    count(*) FILTER (WHERE sessions.is_workers),
    count(*) FILTER (WHERE sessions.is_here AND NOT sessions.is_workers AND sessions.usename = worker.rolname)
FROM limits
CROSS JOIN worker
LEFT JOIN sessions ON true
GROUP BY limits.kind, limits.name, limits.most
ORDER BY limits.most;
