-- The call that has waited for longest in an outbox for one database of the queue: seconds, and why it was put off.
-- Called by jobs.old_calls(). Locks nothing. Leans on pgqueue_outbox_number.
SELECT extract(epoch FROM statement_timestamp() - enqueued_at)::double precision, error
FROM pgqueue_outbox
WHERE number = %(number)s::smallint
ORDER BY id
LIMIT 1;
