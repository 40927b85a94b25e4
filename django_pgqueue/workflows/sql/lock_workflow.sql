-- Lock a workflow until the caller's transaction ends; waits for callers that are adding members. Called by
-- members and rerun, which end or skip. In a statement of its own: what reads stages must have a younger snapshot,
-- for which the isolation level is returned.
SELECT
    pg_advisory_xact_lock(hashtextextended('pgqueue workflow ' || %(workflow_id)s::bigint, 0))::text,
    current_setting('transaction_isolation');
