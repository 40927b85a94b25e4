-- Half-empty pages let a claim put the new version of a row next to the old one: no whole row in the WAL. Vacuum comes
-- after a fixed number of dead rows, unthrottled, and leaves the file's length alone (no exclusive lock). Statistics of
-- a table that swings between empty and full mislead the planner, so they are taken rarely.
ALTER TABLE pgqueue_jobs SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    vacuum_truncate = off
);
ALTER TABLE pgqueue_workers SET (fillfactor = 50);
