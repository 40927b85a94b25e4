-- Begin a workflow. Called by graph.enqueue() in the caller's transaction, which waits for one that has begun a workflow
-- of the same unique key and is still open. Returns the id; no row where an open workflow has the key.
INSERT INTO pgqueue_workflows (name, unique_key, on_death, deadline_at, parent_stage_id, context, keeps_calls)
VALUES (
    %(name)s::text,
    %(unique_key)s::text,
    %(on_death)s::text,
    COALESCE(
        %(deadline_at)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(deadline_seconds)s::double precision)
    ),
    %(parent_stage_id)s::bigint,
    %(context)s::jsonb,
    %(keeps_calls)s::boolean
)
ON CONFLICT (unique_key) WHERE status = 'open' AND unique_key IS NOT NULL DO NOTHING
RETURNING id;
