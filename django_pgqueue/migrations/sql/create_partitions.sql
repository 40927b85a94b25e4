-- The partitions of succeeded jobs for today and a week ahead; workers make the next ones. The default one is the
-- safety net for days whose partition could not be made in time.
DO $$
DECLARE
    day date;
BEGIN
    CREATE TABLE pgqueue_succeeded_jobs_default PARTITION OF pgqueue_succeeded_jobs DEFAULT;
    FOR ahead IN 0..7 LOOP
        day := (statement_timestamp() AT TIME ZONE 'UTC')::date + ahead;
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF pgqueue_succeeded_jobs FOR VALUES FROM (%L) TO (%L)',
            'pgqueue_succeeded_jobs_' || to_char(day, 'YYYYMMDD'),
            day::text || ' 00:00:00+00',
            (day + 1)::text || ' 00:00:00+00'
        );
    END LOOP;
END
$$;
