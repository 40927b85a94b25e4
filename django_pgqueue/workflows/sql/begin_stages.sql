-- Insert the stages of a workflow, and the edges between them. Called by graph.enqueue() in the caller's transaction. Those
-- that wait for none are open at once. Returns the number of edges.
WITH stages AS (
    INSERT INTO pgqueue_stages (id, name, status, opened_at, opens_when, is_sealed, members, previous)
    SELECT
        stage.id,
        stage.name,
        CASE WHEN stage.is_blocked THEN 'blocked' ELSE 'open' END,
        CASE WHEN NOT stage.is_blocked THEN statement_timestamp() END,
        stage.opens_when,
        stage.is_sealed,
        stage.members,
        stage.previous
    FROM json_to_recordset(%(stages)s::json) AS stage (
        id bigint, name text, is_blocked boolean, opens_when text, is_sealed boolean, members integer, previous jsonb
    )
),
edges AS (
    INSERT INTO pgqueue_stage_edges (from_id, to_id)
    SELECT edge.from_id, edge.to_id
    FROM unnest(%(from_ids)s::bigint[], %(to_ids)s::bigint[]) AS edge (from_id, to_id)
    RETURNING id
)
SELECT count(*)
FROM edges;
