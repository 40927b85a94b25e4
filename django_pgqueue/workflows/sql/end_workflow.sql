-- End a workflow that is open, unless another session has locked it. Called by advance.try_to_end(). Returns what
-- pgqueue_end_workflow() does.
SELECT told.kind, told.name
FROM pgqueue_end_workflow(%(id)s::bigint, %(status)s::text, %(by)s::text) AS told;
