-- Skip a stage, as if it had succeeded, or end one that was killed before it opened. Called by members.skip() and
-- kill_stage(), which have locked the workflow. Returns what pgqueue_settle_stage() does.
SELECT told.kind, told.name
FROM pgqueue_settle_stage(%(id)s::bigint, %(action)s::text) AS told;
