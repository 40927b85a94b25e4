-- Open or remove the next members of a stage. Called by advance.move_members(). Returns what pgqueue_move_members() does.
SELECT told.kind, told.name
FROM pgqueue_move_members(%(stage_id)s::bigint) AS told;
