import django.db.models.functions.datetime
from django.db import migrations, models

from django_pgqueue.migrations._base import QueueMigration

OUTCOME = "Of the last run: succeeded, failed, or empty."
DETAIL = "Digest of the result, or class of the exception."


class Migration(QueueMigration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="CutoverCall",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("enqueued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("old_arrived_at", models.DateTimeField(null=True)),
                ("new_arrived_at", models.DateTimeField(null=True)),
                (
                    "compares",
                    models.BooleanField(help_text="Both sides run it, and their results are compared."),
                ),
                ("stage", models.TextField(help_text="Who leads.")),
                ("task", models.TextField()),
                ("old_outcome", models.TextField(db_default="", help_text=OUTCOME)),
                ("old_detail", models.TextField(db_default="", help_text=DETAIL)),
                ("new_outcome", models.TextField(db_default="", help_text=OUTCOME)),
                ("new_detail", models.TextField(db_default="", help_text=DETAIL)),
            ],
            options={"db_table": "pgqueue_cutover_calls"},
        ),
    ]
