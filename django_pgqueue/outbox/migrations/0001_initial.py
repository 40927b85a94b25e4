from django.db import migrations, models
from django.db.models.functions import Now

from django_pgqueue.migrations._base import OutboxMigration

NOW = Now()


class Migration(OutboxMigration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="OutboxCall",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("enqueued_at", models.DateTimeField(db_default=NOW)),
                ("next_at", models.DateTimeField(db_default=NOW, help_text="Not handed over before.")),
                ("number", models.SmallIntegerField(help_text="That of the queue's database among the shards.")),
                ("call", models.JSONField(help_text="Arguments, keys and options.")),
                ("error", models.TextField(db_default="", help_text="Why it was put off.")),
            ],
            options={
                "db_table": "pgqueue_outbox",
                "indexes": [models.Index(fields=["number", "id"], name="pgqueue_outbox_number")],
            },
        ),
        migrations.CreateModel(
            name="HandedOver",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=NOW)),
                (
                    "job_id",
                    models.BigIntegerField(help_text="Another than its own where a live job had its unique key."),
                ),
            ],
            options={"db_table": "pgqueue_handed_over"},
        ),
    ]
