-- Whether there are succeeded jobs whose own time is over, jobs that have been dead for too long, anything in the
-- default partition, counts that are too old, bulk actions and workflows that ended long ago, and keys of once().
-- Called by pruner.look(): to remove them takes rights that a worker without such rows need not have. Reads an entry of
-- an index for each, the length of a file, and the few bulk actions; locks nothing. Without a number of days, dead jobs
-- stay.
SELECT
    EXISTS (
        SELECT
        FROM pgqueue_succeeded_jobs AS succeeded
        WHERE succeeded.prune_at <= statement_timestamp()
    ),
    EXISTS (
        SELECT
        FROM pgqueue_dead_jobs AS dead
        WHERE dead.died_at < statement_timestamp() - make_interval(days => %(days)s::integer)
    ),
    pg_relation_size('pgqueue_succeeded_jobs_default') > 0,
    EXISTS (
        SELECT
        FROM pgqueue_stats AS stat
        WHERE stat.minute < date_trunc('hour', statement_timestamp()) - make_interval(days => %(stats_days)s::integer)
    ),
    EXISTS (
        SELECT
        FROM pgqueue_bulk_actions AS bulk_action
        WHERE bulk_action.ended_at < statement_timestamp() - make_interval(days => %(bulk_action_days)s::integer)
    ),
    EXISTS (
        SELECT
        FROM pgqueue_once_keys AS once_key
        WHERE once_key.taken_at < statement_timestamp() - make_interval(days => %(once_days)s::integer)
    ),
    EXISTS (
        SELECT
        FROM pgqueue_workflows AS workflow
        WHERE workflow.ended_at < statement_timestamp() - make_interval(days => %(workflow_days)s::integer)
    );
