-- Count members that were added to a stage. Called by members.add() in the caller's transaction.
INSERT INTO pgqueue_stage_additions (stage_id, members)
VALUES (%(stage_id)s::bigint, %(members)s::integer)
RETURNING id;
