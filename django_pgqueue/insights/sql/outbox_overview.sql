-- The calls in an outbox for one database of the queue: how many, up to a bound, and for how many seconds the first has
-- waited; NULL where none does. Called by overview.outbox_line(). Locks nothing. Leans on pgqueue_outbox_number.
SELECT
    (SELECT count(*) FROM (SELECT FROM pgqueue_outbox WHERE number = %(number)s::smallint LIMIT %(limit)s::integer) AS call),
    (
        SELECT GREATEST(extract(epoch FROM statement_timestamp() - enqueued_at), 0)::double precision
        FROM pgqueue_outbox
        WHERE number = %(number)s::smallint
        ORDER BY id
        LIMIT 1
    );
