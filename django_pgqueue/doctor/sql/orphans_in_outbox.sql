-- Those of some numbers, which no database of the queue has, that calls in an outbox have. Called by
-- jobs.orphaned_calls(). Locks nothing. Leans on pgqueue_outbox_number.
SELECT other.number
FROM unnest(%(numbers)s::smallint[]) AS other (number)
WHERE EXISTS (SELECT FROM pgqueue_outbox WHERE pgqueue_outbox.number = other.number)
ORDER BY other.number;
