-- Give jobs that hold unique keys the arguments and the metadata of newer calls. Called by unique._Insertion._settle()
-- in the caller's transaction, for jobs of the same task. Locks the rows in order of the keys and waits for them; leans
-- on pgqueue_jobs_unique. Returns key, id and queue; may it run now; its concurrency key if it waits to be admitted. A
-- job that has started meanwhile is missing, but may be locked all the same: the caller undoes the statement.
UPDATE pgqueue_jobs AS job
SET args = COALESCE((
        SELECT jsonb_object_agg(call.unique_key, call.args) FILTER (WHERE call.args IS NOT NULL)
        FROM ROWS FROM (
            unnest(%(unique_keys)s::text[]), jsonb_array_elements(%(args)s::jsonb)
        ) AS call (unique_key, args)
    ) -> job.unique_key, '[]'),
    kwargs = COALESCE((
        SELECT jsonb_object_agg(call.unique_key, call.kwargs) FILTER (WHERE call.kwargs IS NOT NULL)
        FROM ROWS FROM (
            unnest(%(unique_keys)s::text[]), jsonb_array_elements(%(kwargs)s::jsonb)
        ) AS call (unique_key, kwargs)
    ) -> job.unique_key, '{}'),
    tags = %(tags)s::text[],
    metadata = %(metadata)s::jsonb
-- By primary key in an array: with ctid a row that was waited for would be missed, with a join all rows might be read.
WHERE job.id = ANY (ARRAY(
    SELECT conflict.id
    FROM unnest(%(unique_keys)s::text[]) AS call (unique_key)
    CROSS JOIN LATERAL (
        SELECT one.id
        FROM pgqueue_jobs AS one
        WHERE one.unique_key = call.unique_key
          AND one.unique_until IN ('end', 'start')
          AND one.lease_token = 0
          AND one.status <> 'reserved'
          AND (one.expires_at > clock_timestamp()) IS NOT FALSE
          AND one.kill_requested_at IS NULL
          AND one.task = ANY (%(tasks)s::text[])
        LIMIT 1
        FOR NO KEY UPDATE
    ) AS conflict
))
RETURNING
    job.unique_key, job.id, job.queue, job.status = 'queued',
    CASE WHEN job.status = 'limited' THEN job.concurrency_key END;
