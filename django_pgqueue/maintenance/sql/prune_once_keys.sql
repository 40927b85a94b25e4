-- Remove keys of once() that were taken before the given days. Called by pruner.delete_slice(). Takes a bounded slice
-- from the old end of pgqueue_once_keys_age and steps over locked rows. Returns the keys.
DELETE FROM pgqueue_once_keys
WHERE ctid = ANY (ARRAY(
    SELECT once_key.ctid
    FROM pgqueue_once_keys AS once_key
    WHERE once_key.taken_at < statement_timestamp() - make_interval(days => %(days)s::integer)
    ORDER BY once_key.taken_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
))
RETURNING key;
