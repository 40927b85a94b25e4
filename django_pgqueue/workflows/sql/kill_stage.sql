-- Kill a stage: no member is added or opened any more, and those that live are killed in slices. Called by
-- members.kill_stage(), which has locked the workflow. It is over when its last member is.
UPDATE pgqueue_stages
SET killed_by = %(by)s::text, is_sealed = true, moves_after = 0
WHERE id = %(id)s::bigint AND status IN ('blocked', 'open')
RETURNING id;
