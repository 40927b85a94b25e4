-- Keep the stages of a workflow from closing until the caller's transaction ends; those that close them try the same
-- lock, and come back later. Callers that add do not wait for each other. Called by members.add(). In a statement of its
-- own: what reads the stage must have a younger snapshot, for which the isolation level is returned.
SELECT
    pg_advisory_xact_lock_shared(hashtextextended('pgqueue workflow ' || %(workflow_id)s::bigint, 0))::text,
    current_setting('transaction_isolation');
