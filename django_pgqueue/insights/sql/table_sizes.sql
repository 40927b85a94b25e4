-- How many rows the tables of jobs and the partitions of succeeded_jobs have, about, and how much room they take,
-- indexes included. Called by insights.retention. The server counts rows as they come; where it has lost that, it knows
-- them from its last VACUUM or ANALYZE. Returns schema, name, rows and bytes.
SELECT
    space.nspname::text,
    kept.relname::text,
    CASE
        WHEN pg_stat_get_live_tuples(kept.oid) > 0 THEN pg_stat_get_live_tuples(kept.oid)
        ELSE GREATEST(kept.reltuples, 0)::bigint
    END,
    COALESCE(pg_total_relation_size(kept.oid), 0)
FROM pg_class AS kept
JOIN pg_namespace AS space ON space.oid = kept.relnamespace
WHERE kept.oid IN ('pgqueue_jobs'::regclass, 'pgqueue_dead_jobs'::regclass)
   OR kept.oid IN (
       SELECT link.inhrelid FROM pg_inherits AS link WHERE link.inhparent = 'pgqueue_succeeded_jobs'::regclass
   );
