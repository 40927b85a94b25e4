-- Close the stages whose last members have just ended, in the transaction of their outcomes, and open what follows.
-- Called by workers behind their outcomes, by maintenance, and by callers that begin, seal or skip. What lives is not
-- done: the look for a live member reads pgqueue_jobs_stage from its high end, as its low end is where the dead entries
-- are, and locks nothing, so that of many members only the last meet. The lock of the workflow is tried, never waited
-- for: callers that add members hold it to their commit. Each statement in here has a snapshot of its own, younger than the
-- lock. Returns what pgqueue_settle_stage() does, and the stages to look at once more after the commit: as locked, the lock
-- was held; as running, the member that is left runs for another worker, whose outcome may be on its way as well.
CREATE FUNCTION pgqueue_advance(of_stages bigint[], with_deaths bigint[], of_worker bigint)
RETURNS TABLE (kind text, name text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    this bigint;
    witness record;
    lives boolean;
    alarms bigint[];
    alarm bigint;
BEGIN
    FOREACH this IN ARRAY of_stages LOOP
        -- A row comparison: with one value of stage_id the planner might walk down the primary key in its place.
        SELECT job.stage_id, job.status, job.worker_id
        INTO witness
        FROM pgqueue_jobs AS job
        WHERE (job.stage_id, job.id) < (this + 1, 0) AND job.stage_id IS NOT NULL
        ORDER BY job.stage_id DESC, job.id DESC
        LIMIT 1;
        lives := FOUND AND witness.stage_id = this;
        alarms := '{}';
        IF this = ANY (with_deaths) AND (
            EXISTS (SELECT FROM pgqueue_dead_jobs AS dead WHERE dead.stage_id = this)  -- else its outcome was dropped
            OR EXISTS (
                SELECT
                FROM pgqueue_workflows AS child
                WHERE child.parent_stage_id = this AND (child.status IN ('failed', 'killed')) IS TRUE
            )
        ) THEN
            alarms := ARRAY(
                SELECT next.id
                FROM pgqueue_stage_edges AS edge
                JOIN pgqueue_stages AS next ON next.id = edge.to_id
                WHERE edge.from_id = this AND edge.outcome IS NULL AND next.opens_when = 'died' AND next.status = 'blocked'
            );
        END IF;
        IF lives AND witness.status = 'running' AND witness.worker_id <> of_worker THEN
            RETURN QUERY SELECT 'running', this::text;
        END IF;
        CONTINUE WHEN lives AND alarms = '{}';
        IF NOT pg_try_advisory_xact_lock(hashtextextended('pgqueue workflow ' || (this >> 16), 0)) THEN
            RETURN QUERY SELECT 'locked', this::text;
            CONTINUE;
        END IF;
        FOREACH alarm IN ARRAY alarms LOOP
            UPDATE pgqueue_stage_edges AS edge
            SET outcome = 'died'
            WHERE edge.from_id = this AND edge.to_id = alarm AND edge.outcome IS NULL;
            RETURN QUERY SELECT * FROM pgqueue_settle_stage(alarm, 'decide');
        END LOOP;
        IF NOT lives THEN
            RETURN QUERY SELECT * FROM pgqueue_settle_stage(this, 'look');
        END IF;
    END LOOP;
END
$$;
