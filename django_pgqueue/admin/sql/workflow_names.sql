-- Which names workflows have, in alphabetical order, up to a limit. Called by the admin for the choices of its filters,
-- by changelist.names(). Reads one entry of pgqueue_workflows_name for each; locks nothing.
WITH RECURSIVE names (name) AS (
    (SELECT workflow.name FROM pgqueue_workflows AS workflow ORDER BY workflow.name, workflow.id DESC LIMIT 1)
    UNION ALL
    SELECT (
        SELECT workflow.name
        FROM pgqueue_workflows AS workflow
        WHERE workflow.name > names.name
        ORDER BY workflow.name, workflow.id DESC
        LIMIT 1
    )
    FROM names
    WHERE names.name IS NOT NULL
)
SELECT names.name
FROM names
WHERE names.name IS NOT NULL
LIMIT %(limit)s::bigint;
