from django.db import migrations, models

from django_pgqueue.migrations._enqueue import MEETING_WHAT_WILL_RUN, WITH_KEYS
from django_pgqueue.migrations._operations import OnQueueDatabase

# Versions before this one know nothing of keys that jobs have given up because they would not run any more.
FORGET = """
UPDATE pgqueue_jobs SET unique_scope = 'started' WHERE unique_scope = 'given_up';
UPDATE pgqueue_dead_jobs SET unique_scope = 'live' WHERE unique_scope = 'given_up';
"""


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0011_stats_buckets")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.RemoveConstraint(model_name="job", name="pgqueue_jobs_unique_scope"),
                migrations.RunSQL(sql=migrations.RunSQL.noop, reverse_sql=FORGET),
                migrations.AddConstraint(
                    model_name="job",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("unique_key", None), ("unique_scope", None)),
                            models.Q(
                                ("unique_key__isnull", False),
                                ("unique_scope__in", ["live", "start", "started", "given_up"]),
                                ("unique_scope__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="pgqueue_jobs_unique_scope",
                    ),
                ),
                migrations.RunSQL(
                    sql=MEETING_WHAT_WILL_RUN,
                    reverse_sql=WITH_KEYS.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"),
                ),
            ]
        ),
    ]
