-- Which worker processes have been silent for some seconds while the session of their command is not there. Called by
-- leases.silent_workers(). Reads the few rows of pgqueue_workers, and of the server's sessions only the one of each
-- silent process; locks nothing. A pid that another session has got meanwhile hides an absence: then the lease decides.
SELECT worker.id
FROM pgqueue_workers AS worker
WHERE worker.session_pid <> 0
  AND worker.heartbeat_at < statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
  AND worker.lease_until > statement_timestamp()
  AND NOT EXISTS (SELECT FROM pg_stat_get_activity(worker.session_pid));
