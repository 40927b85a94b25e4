-- Take the next jobs of one queue: highest priority first, then by run_at. Called by claim.claim() in the pump.
-- Locks the rows it takes and steps over those that others hold. Leans on pgqueue_jobs_claim, in its order, and stops
-- at LIMIT; the array is computed once, so no plan can take more. run_at is compared for jobs inserted by plain SQL.
-- Returns what sorts a batch first, instants as seconds: a datetime costs more to make than a job to hand over.
-- A row edited between snapshot and lock is not returned; the next claim finds it.
UPDATE pgqueue_jobs
SET status = 'running',
    attempts = LEAST(attempts + 1, 32767),
    lease_token = %(lease_token)s::bigint,
    lease_until = statement_timestamp() + make_interval(secs => lease_seconds),
    worker_id = %(worker_id)s::bigint,
    started_at = statement_timestamp(),
    first_started_at = CASE WHEN first_started_at = 'epoch' THEN statement_timestamp() ELSE first_started_at END
WHERE ctid = ANY (ARRAY(
    SELECT job.ctid
    FROM pgqueue_jobs AS job
    WHERE job.queue = %(queue)s::text
      AND job.status = 'queued'
      AND job.run_at <= statement_timestamp()
    ORDER BY (-job.priority), job.run_at, job.id
    LIMIT 1000
    FOR NO KEY UPDATE SKIP LOCKED
))
RETURNING
    -priority,
    date_part('epoch', run_at),
    id, task, args::text, kwargs::text, attempts, max_attempts, timeout_seconds, lost, keep,
    first_started_at < statement_timestamp() - INTERVAL '1 day';
