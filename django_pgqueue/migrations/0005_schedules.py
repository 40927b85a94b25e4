import django.db.models.functions.datetime
from django.db import migrations, models

import django_pgqueue.states
from django_pgqueue.migrations._operations import OnQueueDatabase


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0004_flow_control")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.RemoveConstraint(model_name="schedule", name="pgqueue_schedules_cron_or_every"),
                migrations.AddConstraint(
                    model_name="schedule",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cron", ""), ("every_seconds__gt", 0), ("every_seconds__isnull", False)),
                            models.Q(models.Q(("cron", ""), _negated=True), ("every_seconds", None)),
                            _connector="OR",
                        ),
                        name="pgqueue_schedules_cron_or_every",
                    ),
                ),
                migrations.AlterModelOptions(
                    name="schedule",
                    options={
                        "ordering": ["name"],
                        "permissions": [
                            ("pause_schedule", "Can pause and resume schedules"),
                            ("run_schedule", "Can run schedules now"),
                        ],
                        "verbose_name": "schedule",
                        "verbose_name_plural": "schedules",
                    },
                ),
                migrations.AddField(
                    model_name="schedule",
                    name="declared_at",
                    field=models.DateTimeField(
                        help_text="When a worker last found it in its code, to ten minutes.",
                        null=True,
                        verbose_name="declared at",
                    ),
                ),
                migrations.AddField(
                    model_name="schedule",
                    name="last_error",
                    field=models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Why its latest tick became no job.",
                        verbose_name="last error",
                    ),
                ),
                migrations.AddField(
                    model_name="schedule",
                    name="paused_by",
                    field=models.TextField(blank=True, db_default="", default="", verbose_name="paused by"),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="args",
                    field=models.JSONField(
                        blank=True, db_default=models.Value([], models.JSONField()), default=list, verbose_name="args"
                    ),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="catch_up",
                    field=models.TextField(
                        choices=[("last", "last"), ("none", "none"), ("all", "all")],
                        db_default=django_pgqueue.states.CatchUp["LAST"],
                        default=django_pgqueue.states.CatchUp["LAST"],
                        verbose_name="catch up",
                    ),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="catch_up_limit",
                    field=models.IntegerField(db_default=100, default=100, verbose_name="catch up at most"),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="created_at",
                    field=models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="created at"
                    ),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="cron",
                    field=models.TextField(blank=True, db_default="", default="", verbose_name="cron"),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="edited_at",
                    field=models.DateTimeField(
                        help_text="Set by an edit in the admin, which wins over code.",
                        null=True,
                        verbose_name="edited at",
                    ),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="every_seconds",
                    field=models.FloatField(blank=True, null=True, verbose_name="every"),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="is_enabled",
                    field=models.BooleanField(db_default=True, default=True, verbose_name="is enabled"),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="jitter_seconds",
                    field=models.FloatField(db_default=0.0, default=0.0, verbose_name="jitter"),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="kwargs",
                    field=models.JSONField(
                        blank=True, db_default=models.Value({}, models.JSONField()), default=dict, verbose_name="kwargs"
                    ),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="last_at",
                    field=models.DateTimeField(
                        help_text="The latest tick that became a job.", null=True, verbose_name="last at"
                    ),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="last_job_id",
                    field=models.BigIntegerField(null=True, verbose_name="last job"),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="options",
                    field=models.JSONField(
                        blank=True,
                        db_default=models.Value({}, models.JSONField()),
                        default=dict,
                        verbose_name="options",
                    ),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="source",
                    field=models.TextField(
                        db_default="admin",
                        default="admin",
                        help_text="Declared in code or made in the admin.",
                        verbose_name="source",
                    ),
                ),
                migrations.AlterField(
                    model_name="schedule",
                    name="timezone",
                    field=models.TextField(db_default="UTC", default="UTC", verbose_name="time zone"),
                ),
                migrations.AddConstraint(
                    model_name="schedule",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            (
                                "catch_up__in",
                                [
                                    django_pgqueue.states.CatchUp["LAST"],
                                    django_pgqueue.states.CatchUp["NONE"],
                                    django_pgqueue.states.CatchUp["ALL"],
                                ],
                            ),
                            ("catch_up_limit__gte", 1),
                            ("jitter_seconds__gte", 0),
                        ),
                        name="pgqueue_schedules_catch_up",
                    ),
                ),
                migrations.AddConstraint(
                    model_name="schedule",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("name", ""), _negated=True), models.Q(("task", ""), _negated=True)
                        ),
                        name="pgqueue_schedules_names",
                    ),
                ),
            ]
        ),
    ]
