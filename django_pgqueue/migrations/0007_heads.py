from django.db import migrations, models

from django_pgqueue.migrations._operations import OnQueueDatabase
from django_pgqueue.migrations._turns import TURNS


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0006_queue_gates")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.CreateModel(
                    name="Head",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("run_at", models.DateTimeField(help_text="Of the first job, at that time.")),
                        ("priority", models.SmallIntegerField()),
                        ("queue", models.TextField()),
                    ],
                    options={
                        "verbose_name": "head",
                        "verbose_name_plural": "heads",
                        "db_table": "pgqueue_heads",
                        "constraints": [
                            models.UniqueConstraint(fields=("queue", "priority"), name="pgqueue_heads_place")
                        ],
                    },
                ),
                migrations.RunSQL(sql=TURNS, reverse_sql="DROP FUNCTION pgqueue_turns"),
            ]
        ),
    ]
