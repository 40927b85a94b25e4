-- Write down what a slice of an operation came to, and where the next one begins. Called by bulk_runner.carry_on(), in
-- the transaction of the slice, which has locked the row. Found by primary key.
UPDATE pgqueue_operations AS operation
SET started_at = COALESCE(operation.started_at, statement_timestamp()),
    next_at = statement_timestamp() + make_interval(secs => %(pause_seconds)s::double precision),
    ended_at = CASE WHEN %(is_over)s::boolean THEN statement_timestamp() END,
    after_id = %(after_id)s::bigint,
    until_id = %(until_id)s::bigint,
    looked = operation.looked + %(looked)s::bigint,
    done = operation.done + %(done)s::bigint,
    outcome = %(outcome)s::jsonb,
    "left" = %(left)s::jsonb,
    last_error = CASE WHEN %(error)s::text = '' THEN operation.last_error ELSE %(error)s::text END
WHERE operation.id = %(id)s::bigint
RETURNING operation.id;
