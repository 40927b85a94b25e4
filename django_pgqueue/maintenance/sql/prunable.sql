-- Whether there are finished jobs whose own time is over, jobs that have been dead for too long, anything in the
-- default partition, counts that are too old, and bulk actions that ended long ago. Called by pruner.look(): to remove
-- them takes rights that a worker without such jobs need not have. Reads one entry of pgqueue_finished_jobs_prune in
-- each partition, one of pgqueue_dead_jobs_age, the length of a file, one of pgqueue_stats_minute, and the few
-- bulk actions; locks nothing. Without a number of days, dead jobs stay.
SELECT
    EXISTS (
        SELECT
        FROM pgqueue_finished_jobs AS finished
        WHERE finished.prune_at <= statement_timestamp()
    ),
    EXISTS (
        SELECT
        FROM pgqueue_dead_jobs AS dead
        WHERE dead.died_at < statement_timestamp() - make_interval(days => %(days)s::integer)
    ),
    pg_relation_size('pgqueue_finished_jobs_default') > 0,
    EXISTS (
        SELECT
        FROM pgqueue_stats AS stat
        WHERE stat.minute < date_trunc('hour', statement_timestamp()) - make_interval(days => %(stats_days)s::integer)
    ),
    EXISTS (
        SELECT
        FROM pgqueue_bulk_actions AS bulk_action
        WHERE bulk_action.ended_at < statement_timestamp() - make_interval(days => %(bulk_action_days)s::integer)
    );
