-- Enqueue a new job like a dead one, with other arguments, and write the link into both histories. Called by
-- retry_with() for staff. A locked row is left out; it waits only for an insert of the same unique key that is not
-- committed, as enqueueing does. Found by primary key. Inserts nothing where the dead job's history has the same form
-- already, or a live job the unique key. A member that never ran and waits for the result of the member before it is blocked
-- again, and its stage opens it. The note goes before the last entry, that of its death. Returns the new one.
WITH target AS MATERIALIZED (
    SELECT dead.*
    FROM pgqueue_dead_jobs AS dead
    WHERE dead.id = %(id)s::bigint
    FOR UPDATE SKIP LOCKED
),
retried AS (
    INSERT INTO pgqueue_jobs (
        run_at, enqueued_at, parent_id, stage_id, lease_seconds, timeout_seconds, priority, max_attempts, concurrency_limit,
        unique_hold_seconds, keep, keep_seconds, concurrency_strict, status, queue, task, backend, args, kwargs,
        unique_key, unique_until, concurrency_key, fair_key, tags, metadata, errors
    )
    SELECT
        statement_timestamp(), statement_timestamp(), target.id, target.stage_id, target.lease_seconds, target.timeout_seconds,
        %(priority)s::smallint, target.max_attempts,
        CASE
            WHEN %(concurrency_key)s::text IS NOT NULL
            THEN COALESCE(target.concurrency_limit, %(concurrency_limit)s::smallint)
        END,
        CASE
            WHEN %(unique_key)s::text IS NULL THEN 0
            WHEN target.unique_key IS NULL THEN %(unique_hold_seconds)s::integer
            ELSE target.unique_hold_seconds
        END,
        target.keep, target.keep_seconds, target.concurrency_strict,
        CASE
            WHEN stage.status = 'blocked' OR stage.status = 'open' AND stage.previous IS NOT NULL AND target.attempts = 0
            THEN 'blocked'
            WHEN %(concurrency_key)s::text IS NULL THEN 'queued'
            ELSE 'limited'
        END,
        %(queue)s::text, %(task)s::text,
        target.backend, %(args)s::jsonb, %(kwargs)s::jsonb, %(unique_key)s::text,
        CASE
            WHEN %(unique_key)s::text IS NULL THEN NULL
            WHEN target.unique_until = 'started' THEN 'start'
            WHEN target.unique_until = 'given_up' THEN 'end'
            ELSE COALESCE(target.unique_until, %(unique_until)s::text)
        END,
        %(concurrency_key)s::text, %(fair_key)s::text, target.tags, target.metadata,
        jsonb_build_array(
            jsonb_build_object(
                'kind', 'retried_with', 'attempt', 0, 'at', statement_timestamp(), 'by', %(by)s::text,
                'retried_from', target.id
            )
        )
    FROM target
    LEFT JOIN pgqueue_stages AS stage ON stage.id = target.stage_id
    WHERE NOT target.errors @> jsonb_build_array(jsonb_build_object('form', %(form)s::text))
    ON CONFLICT DO NOTHING
    RETURNING id, queue, concurrency_key, stage_id, status
),
moving AS (
    UPDATE pgqueue_stages AS stage
    SET moves_after = LEAST(stage.moves_after, retried.id - 1)
    FROM retried
    WHERE retried.status = 'blocked' AND stage.id = retried.stage_id AND stage.status = 'open'
),
noted AS (
    UPDATE pgqueue_dead_jobs AS dead
    SET stage_id = NULL,  -- the new job is the member in its place
        errors = jsonb_insert(
        CASE WHEN jsonb_array_length(target.errors) >= 20 THEN target.errors - 10 ELSE target.errors END,
        '{-1}',
        jsonb_build_object(
            'kind', 'retried_with', 'attempt', target.attempts, 'at', statement_timestamp(), 'by', %(by)s::text,
            'retried_as', retried.id, 'form', %(form)s::text
        )
    )
    FROM retried, target
    WHERE dead.id = target.id
)
SELECT retried.id, retried.queue, retried.concurrency_key
FROM retried;
