-- Keep stages from opening and closing until the caller's transaction ends, of the workflows that these dead jobs are
-- members of; of other jobs it locks nothing. Called before they are retried, in a statement of its own: what reads the
-- stages must have a younger snapshot, for which the isolation level is returned. Found by primary key.
SELECT
    pg_advisory_xact_lock_shared(hashtextextended('pgqueue workflow ' || member.workflow_id, 0))::text,
    current_setting('transaction_isolation')
FROM (
    SELECT DISTINCT dead.stage_id >> 16 AS workflow_id
    FROM pgqueue_dead_jobs AS dead
    WHERE dead.id = ANY (%(ids)s::bigint[]) AND dead.stage_id IS NOT NULL
    ORDER BY 1
) AS member;
