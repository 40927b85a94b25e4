-- Make the row of a queue that has had jobs. Called by flow.queue_limits, with a limit to how long it may wait for
-- a transaction that is just making the same row. Returns it, unless it is there already.
INSERT INTO pgqueue_queues (name)
VALUES (%(name)s::text)
ON CONFLICT (name) DO NOTHING
RETURNING name;
