-- How many members of these stages live, how many are dead and how many were added, each up to a limit. Called by
-- insights.workflow_info. Locks nothing; reads up to the limit from pgqueue_jobs_stage, pgqueue_dead_jobs_stage and
-- pgqueue_stage_additions_stage for each. Of a stage with more live members also returns the numbers that lie between
-- the ids of the first and the last: no more can live. Of a stage that has not begun counts no live ones.
SELECT
    asked.id, live.number, dead.number, added.number,
    CASE
        WHEN live.number < %(limit)s::bigint THEN live.number
        ELSE (
            SELECT job.id FROM pgqueue_jobs AS job WHERE job.stage_id = asked.id ORDER BY job.stage_id DESC, job.id DESC LIMIT 1
        ) - (
            SELECT job.id FROM pgqueue_jobs AS job WHERE job.stage_id = asked.id ORDER BY job.stage_id, job.id LIMIT 1
        ) + 1
    END
FROM unnest(%(stage_ids)s::bigint[], %(have_begun)s::boolean[]) AS asked (id, has_begun)
CROSS JOIN LATERAL (
    SELECT count(*) AS number
    FROM (
        SELECT FROM pgqueue_jobs AS job WHERE asked.has_begun AND job.stage_id = asked.id LIMIT %(limit)s::bigint
    ) AS one
) AS live
CROSS JOIN LATERAL (
    SELECT count(*) AS number
    FROM (
        SELECT FROM pgqueue_dead_jobs AS dead WHERE dead.stage_id = asked.id LIMIT %(limit)s::bigint
    ) AS one
) AS dead
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(one.members), 0)::bigint AS number
    FROM (
        SELECT addition.members
        FROM pgqueue_stage_additions AS addition
        WHERE addition.stage_id = asked.id
        LIMIT %(limit)s::bigint
    ) AS one
) AS added;
