-- Calls that were noted as handed over long ago, as where a relay has ended in between. The note of another job, which a
-- call has met, is kept for longer, and as long as that job is alive: handles find it by the note. Called by
-- relay.Relay. Locks nothing.
SELECT noted.id FROM pgqueue_handed_over AS noted
WHERE
    noted.id BETWEEN %(first)s::bigint AND %(last)s::bigint
    AND noted.at < statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
    AND (
        noted.job_id = noted.id
        OR (
            noted.at < statement_timestamp() - make_interval(days => %(met_days)s::integer)
            AND NOT EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.id = noted.job_id)
        )
    )
LIMIT %(limit)s::integer;
