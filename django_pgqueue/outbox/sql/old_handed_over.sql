-- Calls that were noted as handed over long ago, as where a relay has ended in between. The note of another job, which a
-- call has met, is kept for longer, and as long as that job is in any table: handles find it by the note. Called by
-- relay.Relay. Locks nothing. Leans on the primary keys, of succeeded jobs in all partitions: NOT EXISTS, below OR, might
-- read whole tables into a hash, and with one value of id another index that has it may be read whole.
SELECT noted.id FROM pgqueue_handed_over AS noted
WHERE
    noted.id BETWEEN %(first)s::bigint AND %(last)s::bigint
    AND noted.at < statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
    AND (
        noted.job_id = noted.id
        OR (
            noted.at < statement_timestamp() - make_interval(days => %(met_days)s::integer)
            AND (
                SELECT job.id FROM pgqueue_jobs AS job WHERE job.id >= noted.job_id ORDER BY job.id LIMIT 1
            ) IS DISTINCT FROM noted.job_id
            AND (
                SELECT dead.id FROM pgqueue_dead_jobs AS dead WHERE dead.id >= noted.job_id ORDER BY dead.id LIMIT 1
            ) IS DISTINCT FROM noted.job_id
            AND (SELECT done.id FROM pgqueue_succeeded_jobs AS done WHERE done.id = noted.job_id LIMIT 1) IS NULL
        )
    )
LIMIT %(limit)s::integer;
