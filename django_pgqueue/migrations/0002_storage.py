from django.db import migrations

from django_pgqueue.migrations._enqueue import WITHOUT_KEYS
from django_pgqueue.migrations._operations import OnQueueDatabase

# Half-empty pages let a claim put the new version of a row beside the old one: no whole row in the WAL. Vacuum comes
# after a fixed number of dead rows, unthrottled, and leaves the file's length alone (no exclusive lock).
# Statistics of a table that swings between empty and full mislead the planner, so they are taken rarely.
STORAGE = """
ALTER TABLE pgqueue_jobs SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    vacuum_truncate = off
);
ALTER TABLE pgqueue_workers SET (fillfactor = 50);
"""
PLAIN_STORAGE = """
ALTER TABLE pgqueue_jobs RESET (
    fillfactor,
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor,
    autovacuum_analyze_threshold,
    vacuum_truncate
);
ALTER TABLE pgqueue_workers RESET (fillfactor);
"""

# Today's partition and a week ahead; workers make the next ones.
PARTITIONS = """
DO $$
DECLARE
    day date;
BEGIN
    FOR ahead IN 0..7 LOOP
        day := (statement_timestamp() AT TIME ZONE 'UTC')::date + ahead;
        EXECUTE format(
            'CREATE TABLE IF NOT EXISTS %I PARTITION OF pgqueue_finished_jobs FOR VALUES FROM (%L) TO (%L)',
            'pgqueue_finished_jobs_' || to_char(day, 'YYYYMMDD'),
            day::text || ' 00:00:00+00',
            (day + 1)::text || ' 00:00:00+00'
        );
    END LOOP;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0001_initial")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.RunSQL(sql=STORAGE, reverse_sql=PLAIN_STORAGE),
                migrations.RunSQL(sql=WITHOUT_KEYS, reverse_sql="DROP FUNCTION pgqueue_enqueue"),
                migrations.RunSQL(sql=PARTITIONS, reverse_sql=migrations.RunSQL.noop),
            ]
        ),
    ]
