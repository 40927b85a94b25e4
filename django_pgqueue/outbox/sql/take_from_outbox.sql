-- Take calls for one database of the queue out of the outbox. Called by relay.Relay, whose transaction stays open until
-- they are jobs. Locks the rows until then; leaves out those that another relay has locked. Leans on the primary key.
SELECT id, enqueued_at, call::text
FROM pgqueue_outbox
WHERE number = %(number)s::smallint AND next_at <= statement_timestamp()
ORDER BY id
LIMIT %(limit)s::integer
FOR UPDATE SKIP LOCKED;
