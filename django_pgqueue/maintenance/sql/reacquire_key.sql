-- Take the unique key back for one job that has given it up at its start and is not running any more. Called by
-- maintenance.unique_keys, in a transaction of its own with a short lock_timeout: the unique index waits for an open
-- transaction that has inserted the same key. Skips the row if it is locked or has a conflicting job. Found by primary
-- key. Returns the id.
UPDATE pgqueue_jobs
SET unique_until = 'start'
WHERE ctid = ANY (ARRAY(
    SELECT job.ctid
    FROM pgqueue_jobs AS job
    WHERE job.id = %(id)s::bigint
      AND job.unique_until = 'started'
      AND job.lease_token = 0
      AND job.status <> 'reserved'
      AND (
          SELECT other.id
          FROM pgqueue_jobs AS other
          WHERE other.unique_key = job.unique_key AND other.unique_until IN ('end', 'start')
          LIMIT 1
      ) IS NULL
    LIMIT 1
    FOR NO KEY UPDATE OF job SKIP LOCKED
))
RETURNING id;
