-- Whose session a server process is, as far as this role may see: application, user, state, for how many seconds its
-- transaction has been open, and the client's address. Called by doctor of who holds an old snapshot. Reads
-- memory; no row where the session has ended.
SELECT
    activity.application_name,
    activity.usename::text,
    activity.state,
    extract(epoch FROM clock_timestamp() - activity.xact_start)::double precision,
    host(activity.client_addr)
FROM pg_stat_activity AS activity
WHERE activity.pid = %(pid)s::integer;
