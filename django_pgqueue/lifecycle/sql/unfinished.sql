-- Whether anything is left to drain: claimable or due in the served queues (NULL means all), or running in the given
-- processes. Called by drain.is_drained(). Leans on the claim, due (whose predicate the IN repeats) and
-- running indexes; stops at the first row found.
SELECT
    EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.status = 'queued'
          AND (%(queues)s::text[] IS NULL OR job.queue = ANY (%(queues)s::text[]))
          AND job.run_at <= statement_timestamp()
    )
    OR EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.status IN ('scheduled', 'held')
          AND job.status = 'scheduled'
          AND (%(queues)s::text[] IS NULL OR job.queue = ANY (%(queues)s::text[]))
          AND job.run_at <= statement_timestamp()
    )
    OR EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.status = 'running' AND job.worker_id = ANY (%(worker_ids)s::bigint[])
    );
