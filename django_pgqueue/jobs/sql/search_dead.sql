-- Choose dead jobs by a filter: as search_live.sql, by reason in place of the status and by the age of their death.
-- Called by search.pages(). Reads along the primary key.
WITH until AS MATERIALIZED (
    SELECT COALESCE(%(until_id)s::bigint, max(newest.id)) AS id
    FROM pgqueue_dead_jobs AS newest
),
looked AS MATERIALIZED (
    SELECT
        job.id,
        (%(queues)s::text[] IS NULL OR job.queue = ANY (%(queues)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR job.task = ANY (%(tasks)s::text[]))
            AND (%(task_prefix)s::text IS NULL OR starts_with(job.task, %(task_prefix)s::text))
            AND (%(tags)s::text[] IS NULL OR job.tags @> %(tags)s::text[])
            AND (%(stage)s::bigint IS NULL OR job.stage_id = %(stage)s::bigint)
            AND (%(cause)s::bigint IS NULL OR job.cause = %(cause)s::bigint)
            AND (%(unique_key)s::text IS NULL OR job.unique_key = %(unique_key)s::text)
            AND (
                %(argument)s::jsonb IS NULL
                OR CASE
                    WHEN %(argument_name)s::text IS NOT NULL THEN
                        %(argument)s::jsonb @> (job.kwargs -> %(argument_name)s::text)
                        OR %(argument)s::jsonb @> (job.args -> (%(positions)s::jsonb ->> job.task)::integer)
                    ELSE
                        jsonb_path_exists(
                            job.args, '$[*] ? (@ == $one[*])', jsonb_build_object('one', %(argument)s::jsonb)
                        )
                        OR jsonb_path_exists(
                            job.kwargs, '$.* ? (@ == $one[*])', jsonb_build_object('one', %(argument)s::jsonb)
                        )
                END
            )
            AND (%(kinds)s::text[] IS NULL OR job.reason = ANY (%(kinds)s::text[]))
            AND (
                %(older_than_seconds)s::double precision IS NULL
                OR job.died_at
                    < statement_timestamp() - make_interval(secs => %(older_than_seconds)s::double precision)
            )
            AND (%(before)s::timestamptz IS NULL OR job.died_at <= %(before)s::timestamptz)
            AND (
                %(error)s::text IS NULL
                OR job.errors -> -1 ->> 'error' = %(error)s::text
                OR right(job.errors -> -1 ->> 'error', length(%(error)s::text) + 1) = '.' || %(error)s::text
            ) AS matches
    FROM pgqueue_dead_jobs AS job
    WHERE job.id > %(after_id)s::bigint
      AND job.id <= (SELECT until.id FROM until)
    ORDER BY job.id
    LIMIT %(most)s::integer
),
chosen AS MATERIALIZED (
    SELECT looked.id
    FROM looked
    WHERE looked.matches
    ORDER BY looked.id
    LIMIT 1000
)
SELECT
    CASE
        WHEN (SELECT count(*) FROM chosen) = 1000 THEN (SELECT max(chosen.id) FROM chosen)
        WHEN (SELECT count(*) FROM looked) = %(most)s::integer THEN (SELECT max(looked.id) FROM looked)
    END,
    (SELECT until.id FROM until),
    (SELECT count(*) FROM looked),
    ARRAY(SELECT chosen.id FROM chosen ORDER BY chosen.id);
