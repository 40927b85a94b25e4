-- Which outcomes were written by a transaction whose commit was not answered, of those that find no row with their
-- lease token any more. Called by ack.recorded(), in the rare case. Reads the rest of each job by primary key, as
-- finish.sql does; locks nothing. A success that is not kept leaves nothing behind, and neither does that of another
-- worker: it counts as written unless the job is there, or dead. Returns ids.
SELECT said.id
FROM unnest(
    %(ids)s::bigint[], %(attempts)s::integer[], %(kinds)s::text[], %(reasons)s::text[], %(errors)s::text[],
    %(snoozes)s::integer[]
) AS said (id, attempt, kind, reason, error, snoozes)
LEFT JOIN LATERAL (
    SELECT one.status, one.attempts, one.snoozes, one.errors
    FROM pgqueue_jobs AS one
    WHERE one.id = said.id
    LIMIT 1
) AS live ON true
LEFT JOIN LATERAL (
    SELECT one.reason, one.worker_id, one.errors
    FROM pgqueue_dead_jobs AS one
    WHERE one.id = said.id
    LIMIT 1
) AS dead ON true
LEFT JOIN LATERAL (
    SELECT one.worker_id, one.attempts, one.errors
    FROM pgqueue_succeeded_jobs AS one
    WHERE one.id = said.id
    LIMIT 1
) AS succeeded ON true
WHERE CASE said.kind
    WHEN 'kept' THEN succeeded.worker_id = %(worker_id)s::bigint AND succeeded.attempts = said.attempt
    WHEN 'not kept' THEN COALESCE(live.status, 'reserved') = 'reserved' AND dead.reason IS NULL
    -- each further claim counts an attempt, so that none of another worker can have left both numbers
    WHEN 'snoozed' THEN live.attempts - (live.status = 'running')::integer = said.attempt - 1
        AND live.snoozes > said.snoozes
    WHEN 'died' THEN dead.worker_id = %(worker_id)s::bigint AND dead.reason = said.reason
    WHEN 'retried' THEN COALESCE(live.errors, dead.errors, succeeded.errors) @> jsonb_build_array(
        jsonb_build_object(
            'kind', 'failed', 'attempt', said.attempt, 'worker_id', %(worker_id)s::bigint, 'error', said.error
        )
    )
END;
