-- Send dead jobs back to be run, with all their attempts before them and a note in their history. Called by
-- dead_letter.retry() for staff. Locked rows are left out. Found by primary key. They have not been started yet: so the
-- day after which an unknown task is one counts again, see failure.unknown_task(). A job whose unique key another live
-- job holds stays dead, and its id is missing from the answer; so does one that the checks pgqueue_jobs_lengths and
-- pgqueue_jobs_instants would refuse, as SQL may have inserted it before there were any. A member of a stage that is
-- blocked is blocked again; so is one that never ran and waits for the result of the member before it, and its stage opens
-- it like the others. The caller has locked the workflows by share_workflows.sql.
WITH target AS MATERIALIZED (
    SELECT dead.*
    FROM pgqueue_dead_jobs AS dead
    WHERE dead.id = ANY (%(ids)s::bigint[])
      AND greatest(
          char_length(dead.queue) + 372, char_length(dead.task), char_length(dead.backend),
          char_length(dead.unique_key), char_length(dead.concurrency_key), char_length(dead.fair_key)
      ) <= 500
      AND dead.enqueued_at BETWEEN '1970-01-01Z' AND '9999-01-01Z'
    FOR UPDATE SKIP LOCKED
),
retried AS (
    INSERT INTO pgqueue_jobs (
        id, run_at, enqueued_at, schedule_id, parent_id, stage_id, lease_seconds, timeout_seconds, priority, max_attempts,
        concurrency_limit, unique_hold_seconds, keep, keep_seconds, concurrency_strict, status, queue, task, backend,
        args, kwargs, unique_key, unique_until, concurrency_key, fair_key, tags, metadata, progress, errors
    )
    SELECT
        target.id, statement_timestamp(), target.enqueued_at, target.schedule_id, target.parent_id, target.stage_id,
        target.lease_seconds, target.timeout_seconds, target.priority, target.max_attempts, target.concurrency_limit,
        target.unique_hold_seconds, target.keep, target.keep_seconds, target.concurrency_strict,
        CASE
            WHEN stage.status = 'blocked' OR stage.status = 'open' AND stage.previous IS NOT NULL AND target.attempts = 0
            THEN 'blocked'
            WHEN target.concurrency_key IS NULL THEN 'queued'
            ELSE 'limited'
        END,
        target.queue, target.task,
        target.backend, target.args, target.kwargs, target.unique_key,
        CASE target.unique_until WHEN 'started' THEN 'start' WHEN 'given_up' THEN 'end' ELSE target.unique_until END,
        target.concurrency_key, target.fair_key, target.tags, target.metadata, target.progress,
        CASE WHEN jsonb_array_length(target.errors) >= 20 THEN target.errors - 10 ELSE target.errors END
            || jsonb_build_object(
                'kind', 'retried', 'attempt', target.attempts, 'at', statement_timestamp(), 'by', %(by)s::text,
                'reason', target.reason
            )
    FROM target
    LEFT JOIN pgqueue_stages AS stage ON stage.id = target.stage_id
    ORDER BY target.unique_key COLLATE "C", target.id
    ON CONFLICT DO NOTHING
    RETURNING id, queue, concurrency_key, stage_id, status
),
moving AS (
    UPDATE pgqueue_stages AS stage
    SET moves_after = LEAST(stage.moves_after, member.id - 1)
    FROM (
        SELECT retried.stage_id, min(retried.id) AS id
        FROM retried
        WHERE retried.status = 'blocked'
        GROUP BY retried.stage_id
    ) AS member
    WHERE stage.id = member.stage_id AND stage.status = 'open'
),
gone AS (
    DELETE FROM pgqueue_dead_jobs AS dead
    WHERE dead.id = ANY (ARRAY(SELECT retried.id FROM retried))
)
SELECT retried.id, retried.queue, retried.concurrency_key
FROM retried;
