-- End a workflow that is open, and the open ones that its members have begun. Called by members.end_workflow(). Returns
-- what pgqueue_end_workflow() does.
SELECT told.kind, told.name
FROM pgqueue_end_workflow(%(id)s::bigint, %(status)s::text, %(by)s::text, %(waits)s::boolean) AS told;
