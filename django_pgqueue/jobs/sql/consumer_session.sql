-- Whether the server still works for the consumer of a process that has ended: a statement that was under way goes on,
-- and its claims are committed. Called by leases.has_session(). Reads memory, locks nothing. A session by way of a
-- pooler outlives its client, under its name, and does nothing then; the pooler may add the client's address to that name.
-- Returns one boolean.
SELECT EXISTS (
    SELECT
    FROM pg_stat_activity AS activity
    WHERE activity.datname = current_database()
      AND (
          activity.application_name = 'pgqueue consumer ' || %(worker_id)s::bigint
          OR starts_with(activity.application_name, 'pgqueue consumer ' || %(worker_id)s::bigint || ' - ')
      )
      AND NOT (%(is_pooled)s::boolean AND activity.state = 'idle')
);
