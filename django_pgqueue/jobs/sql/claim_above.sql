-- Take the next jobs of one queue that come after a given one. Called by claim.send() in the consumer, between full
-- scans. The same as claim.sql but for the row comparison, which is the lower bound of the index range: an index keeps
-- an entry for each claimed row until no snapshot can see it any more, and a full scan walks over all of them. Jobs
-- inserted below the bound wait for the next full scan.
UPDATE pgqueue_jobs
SET status = 'running',
    attempts = LEAST(attempts + 1, 32767),
    lease_token = %(lease_token)s::bigint,
    lease_until = statement_timestamp() + make_interval(secs => lease_seconds),
    worker_id = %(worker_id)s::bigint,
    unique_until = CASE
        WHEN unique_until = 'start' THEN 'started'
        WHEN unique_until = 'end' AND (expires_at <= statement_timestamp() OR kill_requested_at IS NOT NULL)
        THEN 'given_up'
        ELSE unique_until
    END,
    started_at = statement_timestamp(),
    first_started_at = CASE WHEN first_started_at = 'epoch' THEN statement_timestamp() ELSE first_started_at END
WHERE ctid = ANY (ARRAY(
    SELECT job.ctid
    FROM pgqueue_jobs AS job
    WHERE job.queue = %(queue)s::text
      AND job.status = 'queued'
      AND job.run_at <= statement_timestamp()
      AND NOT EXISTS (
          SELECT
          FROM pgqueue_queues AS limits
          WHERE limits.name = %(queue)s::text
            AND (
                limits.max_running IS NOT NULL
                OR limits.rate_limit IS NOT NULL
                OR limits.paused_at IS NOT NULL
                    AND (limits.resume_at IS NULL OR limits.resume_at > statement_timestamp())
            )
      )
      AND ((-job.priority), job.run_at, job.id)
          > (%(rank)s::smallint, to_timestamp(%(run_at)s::double precision), %(id)s::bigint)
    ORDER BY (-job.priority), job.run_at, job.id
    LIMIT 1000
    FOR NO KEY UPDATE SKIP LOCKED
))
RETURNING
    -priority,
    date_part('epoch', run_at),
    id, task, args::text, kwargs::text, attempts, max_attempts,
    CASE
        WHEN kill_requested_at IS NOT NULL THEN -1
        WHEN expires_at <= statement_timestamp() THEN -2
        ELSE timeout_seconds
    END,
    lost, keep::integer + 2 * (unique_hold_seconds > 0)::integer
        + CASE WHEN stage_id IS NULL THEN 0 ELSE 4 + 8 * (stage_id & 1)::integer END,
    first_started_at < statement_timestamp() - INTERVAL '1 day', concurrency_key,
    CASE
        WHEN backend <> '' OR metadata <> '{}' OR snoozes <> 0 OR concurrency_slot > 1
        THEN jsonb_build_object(
            'backend', backend, 'metadata', metadata, 'enqueued_at', enqueued_at,
            'first_started_at', first_started_at, 'started_at', started_at, 'worker_id', worker_id, 'errors', errors,
            'snoozes', snoozes, 'slot', concurrency_slot, 'stage_id', stage_id
        )::text
        WHEN stage_id IS NOT NULL THEN stage_id::text
    END,
    CASE WHEN fair_key IS NOT NULL OR run_at < enqueued_at THEN date_part('epoch', enqueued_at) END;
