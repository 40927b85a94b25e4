-- Remove rows older than the retention from one stretch of the default partition. Called by pruner.prune_default(),
-- from stretch to stretch. No index knows the age, and none is worth its upkeep for a table that is almost always
-- empty: so 64 pages are read by their numbers, full or not. Steps over locked rows. Returns how many it
-- removed, and how many pages there are.
WITH gone AS (
    DELETE FROM pgqueue_succeeded_jobs_default
    WHERE ctid = ANY (ARRAY(
        SELECT old.ctid
        FROM pgqueue_succeeded_jobs_default AS old
        WHERE old.ctid >= ('(' || %(page)s::bigint || ',0)')::tid
          AND old.ctid < ('(' || %(page)s::bigint + 64 || ',0)')::tid
          AND old.succeeded_at < (
              date_trunc('day', statement_timestamp() AT TIME ZONE 'UTC')
              - make_interval(days => %(retention_days)s::integer)
          ) AT TIME ZONE 'UTC'
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT
    (SELECT count(*) FROM gone),
    pg_relation_size('pgqueue_succeeded_jobs_default') / current_setting('block_size')::bigint;
