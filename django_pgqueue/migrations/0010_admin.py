import django.db.models.functions.datetime
from django.db import migrations, models

import django_pgqueue.models
from django_pgqueue.migrations._operations import OnQueueDatabase


class Migration(migrations.Migration):
    dependencies = [
        ("django_pgqueue", "0009_history"),
    ]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.CreateModel(
                    name="Operation",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "created_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="created at"
                            ),
                        ),
                        ("started_at", models.DateTimeField(null=True, verbose_name="started at")),
                        (
                            "next_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(),
                                help_text="The next slice is not before.",
                            ),
                        ),
                        ("ended_at", models.DateTimeField(null=True, verbose_name="ended at")),
                        ("stopped_at", models.DateTimeField(null=True, verbose_name="stopped at")),
                        (
                            "after_id",
                            models.BigIntegerField(db_default=0, help_text="The next slice begins above this id."),
                        ),
                        (
                            "until_id",
                            models.BigIntegerField(
                                help_text="It ends with this id: the newest when it began.", null=True
                            ),
                        ),
                        ("looked", models.BigIntegerField(db_default=0, verbose_name="looked at")),
                        ("done", models.BigIntegerField(db_default=0, verbose_name="done")),
                        (
                            "expected",
                            models.BigIntegerField(help_text="How many matched when it was asked for.", null=True),
                        ),
                        (
                            "rate",
                            models.FloatField(
                                help_text="Jobs a second; empty: as fast as it goes.", null=True, verbose_name="rate"
                            ),
                        ),
                        ("verb", models.TextField(verbose_name="verb")),
                        ("source", models.TextField(help_text="Which table: live, dead or finished.")),
                        ("by", models.TextField(verbose_name="by")),
                        ("stopped_by", models.TextField(db_default="", verbose_name="stopped by")),
                        ("last_error", models.TextField(db_default="", verbose_name="last error")),
                        (
                            "filter",
                            models.JSONField(db_default=models.Value({}, models.JSONField()), verbose_name="filter"),
                        ),
                        (
                            "said",
                            models.JSONField(
                                db_default=models.Value({}, models.JSONField()),
                                help_text="What else the verb needs: a queue, a priority.",
                            ),
                        ),
                        (
                            "outcome",
                            models.JSONField(
                                db_default=models.Value({}, models.JSONField()),
                                help_text="How many, by what was done to them.",
                            ),
                        ),
                        (
                            "left",
                            models.JSONField(
                                db_default=models.Value({}, models.JSONField()),
                                help_text="How many, by the reason.",
                                verbose_name="left alone",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "operation",
                        "verbose_name_plural": "operations",
                        "db_table": "pgqueue_operations",
                        "permissions": [("stop_operation", "Can stop operations")],
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="Overview",
                    fields=[],
                    options={
                        "verbose_name": "overview",
                        "verbose_name_plural": "overview",
                        "proxy": True,
                        "default_permissions": ("view",),
                        "indexes": [],
                        "constraints": [],
                    },
                    bases=("django_pgqueue.stat",),
                ),
                migrations.AlterModelOptions(
                    name="job",
                    options={
                        "permissions": [
                            ("run_job", "Can run jobs now"),
                            ("kill_job", "Can kill jobs"),
                            ("move_job", "Can move jobs to another queue"),
                            ("reprioritize_job", "Can change the priority of jobs"),
                        ],
                        "verbose_name": "job",
                        "verbose_name_plural": "jobs",
                    },
                ),
                migrations.AlterModelOptions(
                    name="worker",
                    options={
                        "permissions": [("stop_worker", "Can ask workers to stop")],
                        "verbose_name": "worker",
                        "verbose_name_plural": "workers",
                    },
                ),
                migrations.AddField(
                    model_name="deadjob",
                    name="cause",
                    field=models.GeneratedField(
                        db_persist=True,
                        expression=django_pgqueue.models.Cause(),
                        help_text="The same for jobs that died of the same.",
                        output_field=models.BigIntegerField(),
                    ),
                ),
                migrations.AddField(
                    model_name="worker",
                    name="memory_bytes",
                    field=models.BigIntegerField(
                        db_default=0, help_text="Resident, at the last heartbeat; 0: not known.", verbose_name="memory"
                    ),
                ),
                migrations.AddField(
                    model_name="worker",
                    name="stop_requested_at",
                    field=models.DateTimeField(null=True, verbose_name="asked to stop at"),
                ),
                migrations.AddField(
                    model_name="worker",
                    name="stop_requested_by",
                    field=models.TextField(db_default=""),
                ),
                migrations.AlterField(
                    model_name="stat",
                    name="died",
                    field=models.BigIntegerField(db_default=0, help_text="Jobs that went to the dead jobs."),
                ),
                migrations.AlterField(
                    model_name="stat",
                    name="failed",
                    field=models.BigIntegerField(
                        db_default=0, help_text="Attempts that failed, whatever became of the job."
                    ),
                ),
                migrations.AlterField(
                    model_name="stat",
                    name="lost",
                    field=models.BigIntegerField(db_default=0, help_text="Attempts whose worker died."),
                ),
                migrations.AlterField(
                    model_name="stat",
                    name="minute",
                    field=models.DateTimeField(help_text="In which the attempts ended."),
                ),
                migrations.AlterField(
                    model_name="stat",
                    name="retried",
                    field=models.BigIntegerField(db_default=0, help_text="Of those that failed: the job runs again."),
                ),
                migrations.AlterField(
                    model_name="stat",
                    name="run_seconds",
                    field=models.FloatField(db_default=0.0, help_text="Of all these attempts."),
                ),
                migrations.AlterField(
                    model_name="stat",
                    name="wait_seconds",
                    field=models.FloatField(
                        db_default=0.0, help_text="From run_at to the claim, of all these attempts."
                    ),
                ),
                migrations.AddIndex(
                    model_name="deadjob",
                    index=models.Index(fields=["cause", "-died_at", "-id"], name="pgqueue_dead_jobs_cause"),
                ),
                migrations.AddIndex(
                    model_name="deadjob",
                    index=models.Index(
                        condition=models.Q(("schedule_id__isnull", False)),
                        fields=["schedule_id", "-id"],
                        name="pgqueue_dead_jobs_schedule",
                    ),
                ),
                migrations.AddIndex(
                    model_name="finishedjob",
                    index=models.Index(
                        condition=models.Q(("schedule_id__isnull", False)),
                        fields=["schedule_id", "-id"],
                        name="pgqueue_finished_jobs_schedule",
                    ),
                ),
                migrations.AddIndex(
                    model_name="operation",
                    index=models.Index(
                        condition=models.Q(("ended_at", None)), fields=["next_at"], name="pgqueue_operations_open"
                    ),
                ),
                migrations.AddConstraint(
                    model_name="operation",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            ("rate", None), models.Q(("rate__gt", 0), ("rate__isnull", False)), _connector="OR"
                        ),
                        name="pgqueue_operations_rate",
                    ),
                ),
            ]
        ),
    ]
