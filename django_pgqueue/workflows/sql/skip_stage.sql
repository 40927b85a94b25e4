-- Skip a stage, as if it had succeeded. Called by members.skip(), which has locked the workflow. Returns what
-- pgqueue_settle_stage() does.
SELECT told.kind, told.name
FROM pgqueue_settle_stage(%(id)s::bigint, 'skip') AS told;
