-- Write into running jobs how far they have come, and their metadata, where they have reported it: NULL leaves it as it
-- is. Called by context.send_updates() for the consumer, with the outcomes of the same cycle behind it, and by
-- context.write_alone() in an atomic task's own transaction. Never waits: locked rows are left for the next time.
-- Found like those of finish.sql. Returns the ids written.
WITH told AS MATERIALIZED (
    SELECT job.place, news.progress::jsonb AS progress, news.metadata::jsonb AS metadata
    FROM unnest(
        %(ids)s::bigint[], %(lease_tokens)s::bigint[], %(progress)s::text[], %(metadata)s::text[]
    ) AS news (id, lease_token, progress, metadata)
    CROSS JOIN LATERAL (
        SELECT one.ctid AS place
        FROM pgqueue_jobs AS one
        WHERE one.id = news.id AND one.lease_token = news.lease_token
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
)
UPDATE pgqueue_jobs AS job
SET progress = COALESCE(
        told.progress || jsonb_build_object('attempt', job.attempts, 'at', statement_timestamp()), job.progress
    ),
    metadata = COALESCE(told.metadata, job.metadata)
FROM told
WHERE job.ctid = told.place
RETURNING job.id;
