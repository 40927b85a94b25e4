-- Write down what a slice of a bulk action came to, and where the next one begins. Called by bulk_runner.carry_on(),
-- in the transaction of the slice, which has locked the row. Found by primary key.
UPDATE pgqueue_bulk_actions AS bulk_action
SET started_at = COALESCE(bulk_action.started_at, statement_timestamp()),
    next_at = statement_timestamp() + make_interval(secs => %(pause_seconds)s::double precision),
    ended_at = CASE WHEN %(is_over)s::boolean THEN statement_timestamp() END,
    after_id = %(after_id)s::bigint,
    until_id = %(until_id)s::bigint,
    looked = bulk_action.looked + %(looked)s::bigint,
    done = bulk_action.done + %(done)s::bigint,
    outcome = %(outcome)s::jsonb,
    skipped = %(skipped)s::jsonb,
    last_error = CASE WHEN %(error)s::text = '' THEN bulk_action.last_error ELSE %(error)s::text END
WHERE bulk_action.id = %(id)s::bigint
RETURNING bulk_action.id;
