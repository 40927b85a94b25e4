-- How many jobs there are that go by age one by one, and how many of them are due. Called by insights.retention. Counts
-- up to 10,001 of each. Locks nothing. Returns for dead jobs: all, due, and when the first one died; for succeeded jobs
-- with a time of their own: all, due; and those of the default partition that are due, for which partitions are read
-- that will be dropped: a role that may read the parent may not read the partition itself.
SELECT
    (SELECT count(*) FROM (SELECT FROM pgqueue_dead_jobs LIMIT 10001) AS dead),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pgqueue_dead_jobs AS dead
            WHERE dead.died_at < statement_timestamp() - make_interval(days => %(dead_days)s::integer)
            LIMIT 10001
        ) AS due
    ),
    (SELECT min(dead.died_at) FROM pgqueue_dead_jobs AS dead),
    (
        SELECT count(*)
        FROM (SELECT FROM pgqueue_succeeded_jobs AS succeeded WHERE succeeded.prune_at IS NOT NULL LIMIT 10001) AS timed
    ),
    (
        SELECT count(*)
        FROM (
            SELECT FROM pgqueue_succeeded_jobs AS old WHERE old.prune_at <= statement_timestamp() LIMIT 10001
        ) AS due
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pgqueue_succeeded_jobs AS old
            WHERE old.tableoid = 'pgqueue_succeeded_jobs_default'::regclass
              AND old.succeeded_at < (
                  date_trunc('day', statement_timestamp() AT TIME ZONE 'UTC')
                  - make_interval(days => %(retention_days)s::integer)
              ) AT TIME ZONE 'UTC'
            LIMIT 10001
        ) AS due
    );
