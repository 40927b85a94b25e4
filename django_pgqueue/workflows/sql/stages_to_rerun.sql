-- Which stages run again if the given ones do: these, and all that come after them. Called by rerun.rerun(), which has
-- locked the workflow. Locks nothing. Returns one row: their ids; the name of one that has a member or a child that is
-- alive; names of others that were not over when the workflow was killed, or was late: it skips them at the same instant,
-- with no outcome for those behind; whether calls are gone, which pruning has removed; and the number of calls, up to one
-- above the limit.
WITH RECURSIVE chosen AS (
    SELECT named.id
    FROM unnest(%(ids)s::bigint[]) AS named (id)
    UNION
    SELECT edge.to_id
    FROM chosen
    JOIN pgqueue_stage_edges AS edge ON edge.from_id = chosen.id
),
living AS (
    SELECT stage.name
    FROM chosen
    JOIN pgqueue_stages AS stage ON stage.id = chosen.id
    WHERE EXISTS (
            SELECT
            FROM pgqueue_jobs AS job
            WHERE job.stage_id = stage.id AND (job.status <> 'blocked' OR stage.status = 'open')
            OFFSET 0
        )
       OR EXISTS (
            SELECT
            FROM pgqueue_workflows AS child
            WHERE child.parent_stage_id = stage.id AND (child.status = 'open') IS TRUE
            OFFSET 0
        )
    ORDER BY stage.id
    LIMIT 1
),
undone AS (
    SELECT stage.name
    FROM pgqueue_workflows AS workflow
    JOIN pgqueue_stages AS stage
        ON stage.id >= workflow.id << 16 AND stage.id < workflow.id + 1 << 16
    WHERE workflow.id = %(workflow_id)s::bigint
      AND stage.status = 'skipped'
      AND (
          stage.ended_at = workflow.ended_at
          AND (workflow.status = 'killed' OR workflow.status = 'failed' AND workflow.deadline_at <= workflow.ended_at)
          OR EXISTS (SELECT FROM pgqueue_stage_edges AS edge WHERE edge.from_id = stage.id AND edge.outcome IS NULL)
      )
      AND NOT EXISTS (SELECT FROM chosen AS other WHERE other.id = stage.id)
    ORDER BY stage.id
    LIMIT 10
),
incomplete AS (
    SELECT chosen.id
    FROM chosen
    JOIN pgqueue_stages AS stage ON stage.id = chosen.id
    WHERE (SELECT count(*) FROM pgqueue_kept_calls AS kept WHERE kept.stage_id = chosen.id)
        < stage.members + COALESCE((
            SELECT sum(addition.members)
            FROM pgqueue_stage_additions AS addition
            WHERE addition.stage_id = chosen.id
        ), 0)
),
calls AS (
    SELECT kept.id
    FROM chosen
    JOIN pgqueue_kept_calls AS kept ON kept.stage_id = chosen.id
    WHERE NOT EXISTS (SELECT FROM chosen AS other WHERE other.id = kept.by_stage_id)
    LIMIT %(most)s::integer + 1
)
SELECT
    ARRAY(SELECT chosen.id FROM chosen ORDER BY chosen.id),
    (SELECT living.name FROM living),
    ARRAY(SELECT undone.name FROM undone),
    EXISTS (SELECT FROM incomplete),
    (SELECT count(*) FROM calls);
