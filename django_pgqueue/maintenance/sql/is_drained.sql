-- Whether anything is left to drain: claimable, due or about to be admitted in the served queues (patterns of LIKE;
-- wanted NULL means all) that are not paused, or running in the given processes; or a stage of a workflow that is over,
-- or opens its members. Called by pending_work.is_drained(). Walks along pgqueue_jobs_claim from queue to queue and along
-- pgqueue_jobs_limited from key to key; leans on the due and the running index, and on pgqueue_stages_open. Locks
-- nothing, stops at the first row, and returns one boolean.
WITH RECURSIVE backlog (queue) AS (
    (SELECT job.queue FROM pgqueue_jobs AS job WHERE job.status = 'queued' ORDER BY job.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.queue
        FROM pgqueue_jobs AS job
        WHERE job.status = 'queued' AND job.queue > backlog.queue
        ORDER BY job.queue
        LIMIT 1
    )
    FROM backlog
    WHERE backlog.queue IS NOT NULL
),
limited (key) AS (
    (
        SELECT job.concurrency_key
        FROM pgqueue_jobs AS job
        WHERE job.status = 'limited'
        ORDER BY job.concurrency_key, (-job.priority), job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT job.concurrency_key
        FROM pgqueue_jobs AS job
        WHERE job.status = 'limited' AND job.concurrency_key > limited.key
        ORDER BY job.concurrency_key, (-job.priority), job.run_at, job.id
        LIMIT 1
    )
    FROM limited
    WHERE limited.key IS NOT NULL
),
paused AS MATERIALIZED (
    SELECT limits.name
    FROM pgqueue_queues AS limits
    WHERE limits.paused_at IS NOT NULL AND (limits.resume_at IS NULL OR limits.resume_at > statement_timestamp())
)
SELECT
    EXISTS (
        SELECT
        FROM backlog
        WHERE (%(wanted)s::text[] IS NULL OR backlog.queue LIKE ANY (%(wanted)s::text[]))
          AND NOT backlog.queue LIKE ANY (%(unwanted)s::text[])
          AND NOT EXISTS (SELECT FROM paused WHERE paused.name = backlog.queue)
          AND EXISTS (
              SELECT
              FROM pgqueue_jobs AS job
              WHERE job.queue = backlog.queue AND job.status = 'queued' AND job.run_at <= statement_timestamp()
          )
    )
    OR EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.status IN ('scheduled', 'reserved')  -- the predicate of the due index
          AND job.status = 'scheduled'
          AND job.run_at <= statement_timestamp()
          AND (%(wanted)s::text[] IS NULL OR job.queue LIKE ANY (%(wanted)s::text[]))
          AND NOT job.queue LIKE ANY (%(unwanted)s::text[])
          AND NOT EXISTS (SELECT FROM paused WHERE paused.name = job.queue)
    )
    OR EXISTS (
        SELECT
        FROM limited
        CROSS JOIN LATERAL (
            SELECT job.queue, job.concurrency_limit
            FROM pgqueue_jobs AS job
            WHERE job.status = 'limited'
              AND job.concurrency_key = limited.key
              AND job.run_at <= statement_timestamp()
            ORDER BY job.concurrency_key, (-job.priority), job.run_at, job.id
            LIMIT 1
        ) AS head
        WHERE (%(wanted)s::text[] IS NULL OR head.queue LIKE ANY (%(wanted)s::text[]))
          AND NOT head.queue LIKE ANY (%(unwanted)s::text[])
          AND NOT EXISTS (SELECT FROM paused WHERE paused.name = head.queue)
          -- what takes the room counts instead, unless others run it: they may take their time
          AND head.concurrency_limit > (
              SELECT count(*)
              FROM pgqueue_jobs AS job
              WHERE job.concurrency_key = limited.key AND job.concurrency_slot IS NOT NULL
          )
    )
    OR EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.status = 'running' AND job.worker_id = ANY (%(worker_ids)s::bigint[])
    )
    OR EXISTS (SELECT FROM pgqueue_stages AS stage WHERE stage.moves_after IS NOT NULL AND stage.status <> 'skipped')
    OR EXISTS (
        SELECT
        FROM pgqueue_stages AS stage
        WHERE stage.status = 'open'
          AND stage.is_sealed
          AND NOT EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.stage_id = stage.id)
          AND NOT EXISTS (
              SELECT
              FROM pgqueue_workflows AS child
              WHERE child.parent_stage_id = stage.id AND (child.status = 'open') IS TRUE
          )
          AND (
              EXISTS (
                  SELECT
                  FROM pgqueue_workflow_of(stage.id) AS workflow
                  WHERE workflow.on_death <> 'wait'
              )
              OR stage.killed_by IS NOT NULL
              OR NOT EXISTS (SELECT FROM pgqueue_dead_jobs AS dead WHERE dead.stage_id = stage.id)
              AND NOT EXISTS (
                  SELECT
                  FROM pgqueue_workflows AS child
                  WHERE child.parent_stage_id = stage.id AND (child.status IN ('failed', 'killed')) IS TRUE
              )
          )
    );
