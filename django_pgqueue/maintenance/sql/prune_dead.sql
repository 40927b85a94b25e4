-- Remove jobs that have been dead for the given days. Called by pruner.delete_slice(). Takes a bounded slice from
-- the old end of pgqueue_dead_jobs_age and steps over locked rows, as those that are just being retried, and over those
-- that an open workflow waits for. Returns their ids.
DELETE FROM pgqueue_dead_jobs
WHERE ctid = ANY (ARRAY(
    SELECT dead.ctid
    FROM pgqueue_dead_jobs AS dead
    WHERE dead.died_at < statement_timestamp() - make_interval(days => %(days)s::integer)
      AND (
          dead.stage_id IS NULL
          OR NOT EXISTS (SELECT FROM pgqueue_workflow_of(dead.stage_id) AS workflow WHERE workflow.status = 'open')
      )
    ORDER BY dead.died_at, dead.id
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
))
RETURNING id;
