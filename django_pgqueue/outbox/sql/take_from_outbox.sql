-- Take calls for one database of the queue out of the outbox. Called by relay.Relay, whose transaction stays open until
-- they are jobs. Locks the rows until then; leaves out those that another relay has locked. Leans on
-- pgqueue_outbox_number: those that wait for another database that is away are not looked at.
SELECT
    outbox.id,
    to_char(outbox.enqueued_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    call.keys ->> 0,
    call.keys ->> 1,
    call.keys ->> 2,
    call.options::text,
    call.args::text,
    call.kwargs::text
FROM pgqueue_outbox AS outbox
CROSS JOIN LATERAL jsonb_to_record(outbox.call) AS call (keys jsonb, options jsonb, args jsonb, kwargs jsonb)
WHERE outbox.number = %(number)s::smallint AND outbox.next_at <= statement_timestamp()
ORDER BY outbox.id
LIMIT %(limit)s::integer
FOR UPDATE OF outbox SKIP LOCKED;
