-- Put calls into the outbox, in the caller's transaction on the database of the data. Called by writing.put(). Locks
-- nothing but its own rows. Returns their ids, which ascend in the order of the calls, and when they were enqueued.
INSERT INTO pgqueue_outbox (number, call)
SELECT %(number)s::smallint, call.value
FROM json_array_elements(%(args)s::json) WITH ORDINALITY AS call (value, position)
ORDER BY call.position
RETURNING id, enqueued_at;
