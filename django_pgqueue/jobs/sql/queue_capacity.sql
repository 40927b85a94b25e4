-- What a limited queue has left after a claim: whether a job waits there that is due, and for how many seconds its
-- bucket has no whole token (0 where it has one, or there is no rate). Called by claim.send_limited(), so that a worker
-- knows when to come back. Reads the queue's row and one entry of pgqueue_jobs_claim; locks nothing. No row: no such
-- queue.
SELECT
    EXISTS (
        SELECT
        FROM pgqueue_jobs AS job
        WHERE job.queue = %(queue)s::text AND job.status = 'queued' AND job.run_at <= statement_timestamp()
    ),
    CASE
        WHEN one.rate_limit IS NULL THEN 0.0
        ELSE GREATEST(
            (1 - one.tokens) * one.rate_period_seconds / one.rate_limit
                - abs(extract(epoch FROM statement_timestamp() - one.tokens_at))::double precision,
            0
        )
    END
FROM pgqueue_queues AS one
WHERE one.name = %(queue)s::text;
