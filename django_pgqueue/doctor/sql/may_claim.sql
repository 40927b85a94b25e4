-- Whether this role may claim, so that the server plans the claim for it, and whether the index of claims is there and
-- may be used; and the queue whose job is claimed next, of any. Called by doctor.tables.claim_plan(). Reads the
-- catalogue, and one entry of pgqueue_jobs_claim. Locks nothing.
SELECT
    has_table_privilege('pgqueue_jobs', 'SELECT')
        AND has_table_privilege('pgqueue_jobs', 'UPDATE')
        AND has_table_privilege('pgqueue_queues', 'SELECT'),
    EXISTS (
        SELECT
        FROM pg_index
        WHERE pg_index.indexrelid = to_regclass('pgqueue_jobs_claim') AND pg_index.indisvalid
    ),
    COALESCE(
        (SELECT job.queue FROM pgqueue_jobs AS job WHERE job.status = 'queued' ORDER BY job.queue LIMIT 1), 'default'
    );
