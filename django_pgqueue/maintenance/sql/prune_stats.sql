-- Remove counts older than the given days, by the hour, so that there is something to remove once in an hour and no
-- more. Called by pruner.delete_slice(). Takes a bounded slice from the old end of pgqueue_stats_minute and steps over
-- locked rows. Returns their ids.
DELETE FROM pgqueue_stats
WHERE ctid = ANY (ARRAY(
    SELECT stat.ctid
    FROM pgqueue_stats AS stat
    WHERE stat.minute < date_trunc('hour', statement_timestamp()) - make_interval(days => %(days)s::integer)
    ORDER BY stat.minute, stat.queue, stat.task
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
))
RETURNING id;
