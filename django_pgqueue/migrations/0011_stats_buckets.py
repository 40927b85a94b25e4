from django.db import migrations, models

import django_pgqueue.models
from django_pgqueue.migrations._operations import OnQueueDatabase


class Migration(migrations.Migration):
    dependencies = [
        ("django_pgqueue", "0010_admin"),
    ]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.AddField(
                    model_name="stat",
                    name="stale",
                    field=models.BigIntegerField(
                        db_default=0, help_text="Results that were dropped: the lease was lost."
                    ),
                ),
                migrations.AddField(
                    model_name="stat",
                    name="wait_buckets",
                    field=django_pgqueue.models.Counts(
                        db_default=django_pgqueue.models.NO_COUNTS,
                        help_text="How many waited up to 1 ms, up to 2.5 ms, and so on.",
                    ),
                ),
                migrations.AddField(
                    model_name="stat",
                    name="run_buckets",
                    field=django_pgqueue.models.Counts(
                        db_default=django_pgqueue.models.NO_COUNTS, help_text="The same of how long they ran."
                    ),
                ),
            ]
        ),
    ]
