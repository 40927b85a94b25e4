-- Seal a stage, which may be over when its members are. Called by members.seal() in the caller's transaction.
UPDATE pgqueue_stages
SET is_sealed = true
WHERE id = %(id)s::bigint AND NOT is_sealed AND status IN ('blocked', 'open')
RETURNING id;
