-- The first unique key of kept calls that is none of those that were taken, and the job that holds it, where it can be
-- seen. Called by rerun.rerun() before it rolls back. Locks nothing.
SELECT kept.call ->> 'unique_key', holder.id
FROM pgqueue_kept_calls AS kept
LEFT JOIN pgqueue_jobs AS holder
    ON holder.unique_key = kept.call ->> 'unique_key' AND holder.unique_until IN ('end', 'start')
WHERE kept.stage_id = ANY (%(ids)s::bigint[])
  AND kept.call ->> 'unique_key' IS NOT NULL
  AND kept.call ->> 'unique_key' <> ALL (%(taken)s::text[])
ORDER BY kept.id
LIMIT 1;
