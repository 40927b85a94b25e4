import datetime

import django.db.models.functions.datetime
from django.db import migrations, models
from django.db.models import lookups

import django_pgqueue.models
import django_pgqueue.states
from django_pgqueue.migrations._operations import OnQueueDatabase

CREATE_FINISHED_JOBS = """
CREATE TABLE pgqueue_finished_jobs (
    id bigint NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    enqueued_at timestamptz NOT NULL,
    run_at timestamptz NOT NULL,
    first_started_at timestamptz NOT NULL,
    started_at timestamptz NOT NULL,
    worker_id bigint NOT NULL,
    schedule_id bigint,
    parent_id bigint,
    run_seconds double precision NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    lost smallint NOT NULL,
    queue text NOT NULL,
    task text NOT NULL,
    backend text NOT NULL,
    args jsonb NOT NULL,
    kwargs jsonb NOT NULL,
    result jsonb,
    metadata jsonb NOT NULL,
    progress jsonb,
    errors jsonb NOT NULL,
    PRIMARY KEY (id, finished_at)
) PARTITION BY RANGE (finished_at);

-- The safety net for days whose partition could not be made in time.
CREATE TABLE pgqueue_finished_jobs_default PARTITION OF pgqueue_finished_jobs DEFAULT;
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        OnQueueDatabase(
            state_operations=[
                migrations.CreateModel(
                    name="FinishedJob",
                    fields=[
                        ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                        (
                            "finished_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="finished at"
                            ),
                        ),
                        ("enqueued_at", models.DateTimeField(verbose_name="enqueued at")),
                        ("run_at", models.DateTimeField()),
                        ("first_started_at", models.DateTimeField()),
                        ("started_at", models.DateTimeField()),
                        ("worker_id", models.BigIntegerField()),
                        ("schedule_id", models.BigIntegerField(null=True)),
                        ("parent_id", models.BigIntegerField(null=True)),
                        (
                            "run_seconds",
                            models.FloatField(
                                help_text="Of the attempt that succeeded, in seconds.", verbose_name="run time"
                            ),
                        ),
                        ("priority", models.SmallIntegerField()),
                        ("attempts", models.SmallIntegerField(verbose_name="attempts")),
                        ("lost", models.SmallIntegerField()),
                        ("queue", models.TextField(verbose_name="queue")),
                        ("task", models.TextField(verbose_name="task")),
                        ("backend", models.TextField()),
                        ("args", models.JSONField()),
                        ("kwargs", models.JSONField()),
                        ("result", models.JSONField(null=True)),
                        ("metadata", models.JSONField()),
                        ("progress", models.JSONField(null=True)),
                        ("errors", models.JSONField()),
                    ],
                    options={
                        "verbose_name": "finished job",
                        "verbose_name_plural": "finished jobs",
                        "db_table": "pgqueue_finished_jobs",
                    },
                ),
            ],
            database_operations=[
                migrations.RunSQL(sql=CREATE_FINISHED_JOBS, reverse_sql="DROP TABLE pgqueue_finished_jobs"),
            ],
        ),
        OnQueueDatabase.both(
            [
                migrations.CreateModel(
                    name="Worker",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "supervisor_id",
                            models.BigIntegerField(help_text="Shared by the processes of one pgqueue_worker command."),
                        ),
                        (
                            "started_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="started at"
                            ),
                        ),
                        (
                            "heartbeat_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="last heartbeat"
                            ),
                        ),
                        ("lease_until", models.DateTimeField()),
                        ("pid", models.IntegerField()),
                        ("concurrency", models.IntegerField()),
                        ("host", models.TextField(verbose_name="host")),
                        ("name", models.TextField(db_default="", verbose_name="name")),
                        ("version", models.TextField()),
                        (
                            "queues",
                            models.JSONField(
                                db_default=models.Value([], models.JSONField()), help_text="Empty means all."
                            ),
                        ),
                        ("metadata", models.JSONField(db_default=models.Value({}, models.JSONField()))),
                    ],
                    options={
                        "verbose_name": "worker",
                        "verbose_name_plural": "workers",
                        "db_table": "pgqueue_workers",
                    },
                ),
                migrations.CreateModel(
                    name="DeadJob",
                    fields=[
                        ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                        (
                            "died_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="died at"
                            ),
                        ),
                        ("run_at", models.DateTimeField()),
                        ("enqueued_at", models.DateTimeField(verbose_name="enqueued at")),
                        (
                            "first_started_at",
                            models.DateTimeField(db_default=datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        (
                            "started_at",
                            models.DateTimeField(db_default=datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        ("worker_id", models.BigIntegerField(db_default=0)),
                        ("schedule_id", models.BigIntegerField(null=True)),
                        ("parent_id", models.BigIntegerField(null=True)),
                        ("expires_at", models.DateTimeField(null=True)),
                        ("lease_seconds", models.IntegerField(db_default=30)),
                        ("timeout_seconds", models.IntegerField(db_default=0)),
                        ("priority", models.SmallIntegerField(db_default=0, verbose_name="priority")),
                        ("attempts", models.SmallIntegerField(db_default=0, verbose_name="attempts")),
                        ("max_attempts", models.SmallIntegerField(db_default=10)),
                        ("lost", models.SmallIntegerField(db_default=0)),
                        ("concurrency_limit", models.SmallIntegerField(null=True)),
                        ("keep", models.BooleanField(db_default=True)),
                        (
                            "reason",
                            models.TextField(
                                choices=[
                                    ("exhausted", "exhausted"),
                                    ("discarded", "discarded"),
                                    ("lost", "lost"),
                                    ("killed", "killed"),
                                    ("expired", "expired"),
                                    ("unknown_task", "unknown task"),
                                ],
                                verbose_name="reason",
                            ),
                        ),
                        ("queue", models.TextField(verbose_name="queue")),
                        ("task", models.TextField(verbose_name="task")),
                        ("backend", models.TextField(db_default="")),
                        ("args", models.JSONField(db_default=models.Value([], models.JSONField()))),
                        ("kwargs", models.JSONField(db_default=models.Value({}, models.JSONField()))),
                        ("unique_key", models.TextField(null=True)),
                        ("unique_scope", models.TextField(null=True)),
                        ("concurrency_key", models.TextField(null=True)),
                        ("fair_key", models.TextField(null=True)),
                        ("cancelled_by", models.TextField(null=True)),
                        ("metadata", models.JSONField(db_default=models.Value({}, models.JSONField()))),
                        ("progress", models.JSONField(null=True)),
                        ("errors", models.JSONField(db_default=models.Value([], models.JSONField()))),
                    ],
                    options={
                        "verbose_name": "dead job",
                        "verbose_name_plural": "dead jobs",
                        "db_table": "pgqueue_dead_jobs",
                        "permissions": [("requeue_deadjob", "Can requeue dead jobs")],
                        "indexes": [
                            models.Index(fields=["-died_at", "-id"], name="pgqueue_dead_jobs_age"),
                            models.Index(fields=["reason", "-died_at", "-id"], name="pgqueue_dead_jobs_reason"),
                            models.Index(fields=["queue", "-died_at", "-id"], name="pgqueue_dead_jobs_queue"),
                            models.Index(fields=["task", "-died_at", "-id"], name="pgqueue_dead_jobs_task"),
                        ],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    (
                                        "reason__in",
                                        [
                                            django_pgqueue.states.Reason["EXHAUSTED"],
                                            django_pgqueue.states.Reason["DISCARDED"],
                                            django_pgqueue.states.Reason["LOST"],
                                            django_pgqueue.states.Reason["KILLED"],
                                            django_pgqueue.states.Reason["EXPIRED"],
                                            django_pgqueue.states.Reason["UNKNOWN_TASK"],
                                        ],
                                    )
                                ),
                                name="pgqueue_dead_jobs_known_reason",
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Job",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "run_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(),
                                help_text="Not started before.",
                                verbose_name="run at",
                            ),
                        ),
                        (
                            "enqueued_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="enqueued at"
                            ),
                        ),
                        (
                            "first_started_at",
                            models.DateTimeField(
                                db_default=datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC),
                                help_text="First attempt; 1970 means not yet.",
                            ),
                        ),
                        (
                            "started_at",
                            models.DateTimeField(
                                db_default=datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC),
                                help_text="Latest attempt, when claimed.",
                                verbose_name="started at",
                            ),
                        ),
                        (
                            "lease_until",
                            models.DateTimeField(
                                db_default=datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC),
                                help_text="A silent worker keeps the job until then.",
                            ),
                        ),
                        (
                            "lease_token",
                            models.BigIntegerField(db_default=0, help_text="Proves the lease; 0 means not running."),
                        ),
                        (
                            "worker_id",
                            models.BigIntegerField(db_default=0, help_text="The worker process that runs it."),
                        ),
                        ("schedule_id", models.BigIntegerField(null=True)),
                        ("parent_id", models.BigIntegerField(help_text="The job that enqueued it.", null=True)),
                        ("expires_at", models.DateTimeField(null=True)),
                        ("cancel_requested_at", models.DateTimeField(null=True)),
                        ("lease_seconds", models.IntegerField(db_default=30)),
                        ("timeout_seconds", models.IntegerField(db_default=0, help_text="0 means no limit.")),
                        (
                            "priority",
                            models.SmallIntegerField(
                                db_default=0, help_text="-100 to 100; larger runs sooner.", verbose_name="priority"
                            ),
                        ),
                        (
                            "attempts",
                            models.SmallIntegerField(
                                db_default=0, help_text="Counted when claimed.", verbose_name="attempts"
                            ),
                        ),
                        ("max_attempts", models.SmallIntegerField(db_default=10)),
                        ("lost", models.SmallIntegerField(db_default=0, help_text="How often a worker died with it.")),
                        ("concurrency_limit", models.SmallIntegerField(null=True)),
                        ("concurrency_slot", models.SmallIntegerField(null=True)),
                        (
                            "keep",
                            models.BooleanField(db_default=True, help_text="Keep in finished jobs after success."),
                        ),
                        (
                            "status",
                            models.TextField(
                                choices=[
                                    ("scheduled", "scheduled"),
                                    ("queued", "queued"),
                                    ("waiting", "waiting"),
                                    ("running", "running"),
                                    ("held", "held"),
                                ],
                                db_default=django_pgqueue.states.Status["QUEUED"],
                                verbose_name="status",
                            ),
                        ),
                        ("queue", models.TextField(db_default="default", verbose_name="queue")),
                        ("task", models.TextField(verbose_name="task")),
                        (
                            "backend",
                            models.TextField(
                                db_default="", help_text="Alias in TASKS, for jobs of the Tasks framework."
                            ),
                        ),
                        ("args", models.JSONField(db_default=models.Value([], models.JSONField()))),
                        ("kwargs", models.JSONField(db_default=models.Value({}, models.JSONField()))),
                        ("unique_key", models.TextField(null=True)),
                        ("unique_scope", models.TextField(null=True)),
                        ("concurrency_key", models.TextField(null=True)),
                        ("fair_key", models.TextField(null=True)),
                        ("cancelled_by", models.TextField(null=True)),
                        ("metadata", models.JSONField(db_default=models.Value({}, models.JSONField()))),
                        ("progress", models.JSONField(null=True)),
                        (
                            "errors",
                            models.JSONField(
                                db_default=models.Value([], models.JSONField()),
                                help_text="One entry for each failed attempt.",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "job",
                        "verbose_name_plural": "jobs",
                        "db_table": "pgqueue_jobs",
                        "permissions": [("run_job", "Can run jobs now"), ("kill_job", "Can kill jobs")],
                        "indexes": [
                            models.Index(
                                models.F("queue"),
                                django_pgqueue.models.Negative("priority"),
                                models.F("run_at"),
                                models.F("id"),
                                condition=models.Q(("status", django_pgqueue.states.Status["QUEUED"])),
                                name="pgqueue_jobs_claim",
                            ),
                            models.Index(
                                condition=models.Q(("status", django_pgqueue.states.Status["RUNNING"])),
                                fields=["worker_id"],
                                name="pgqueue_jobs_running",
                            ),
                            models.Index(
                                condition=models.Q(
                                    (
                                        "status__in",
                                        [
                                            django_pgqueue.states.Status["SCHEDULED"],
                                            django_pgqueue.states.Status["HELD"],
                                        ],
                                    )
                                ),
                                fields=["run_at"],
                                name="pgqueue_jobs_due",
                            ),
                            models.Index(
                                condition=models.Q(("concurrency_key__isnull", False)),
                                fields=["concurrency_key"],
                                name="pgqueue_jobs_concurrency",
                            ),
                        ],
                        "constraints": [
                            models.UniqueConstraint(
                                condition=models.Q(("unique_key__isnull", False)),
                                fields=("unique_key",),
                                name="pgqueue_jobs_unique",
                            ),
                            models.UniqueConstraint(
                                condition=models.Q(("concurrency_slot__isnull", False)),
                                fields=("concurrency_key", "concurrency_slot"),
                                name="pgqueue_jobs_slot",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    (
                                        "status__in",
                                        [
                                            django_pgqueue.states.Status["SCHEDULED"],
                                            django_pgqueue.states.Status["QUEUED"],
                                            django_pgqueue.states.Status["WAITING"],
                                            django_pgqueue.states.Status["RUNNING"],
                                            django_pgqueue.states.Status["HELD"],
                                        ],
                                    )
                                ),
                                name="pgqueue_jobs_status",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(
                                        ("status", django_pgqueue.states.Status["RUNNING"]),
                                        models.Q(("lease_token", 0), _negated=True),
                                    ),
                                    models.Q(
                                        models.Q(("status", django_pgqueue.states.Status["RUNNING"]), _negated=True),
                                        ("lease_token", 0),
                                    ),
                                    _connector="OR",
                                ),
                                name="pgqueue_jobs_running_has_lease",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("priority__range", (-100, 100))), name="pgqueue_jobs_priority"
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("attempts__gte", 0), ("lost__gte", 0), ("max_attempts__gte", 1)),
                                name="pgqueue_jobs_attempts",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    (
                                        "run_at__range",
                                        (
                                            datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
                                            datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC),
                                        ),
                                    )
                                ),
                                name="pgqueue_jobs_run_at",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    lookups.Exact(
                                        models.Func(
                                            models.F("errors"),
                                            function="jsonb_typeof",
                                            output_field=models.TextField(),
                                        ),
                                        models.Value("array"),
                                    )
                                ),
                                name="pgqueue_jobs_errors",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("lease_seconds__gte", 1), ("timeout_seconds__gte", 0)),
                                name="pgqueue_jobs_durations",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("queue", ""), _negated=True), models.Q(("task", ""), _negated=True)
                                ),
                                name="pgqueue_jobs_names",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Queue",
                    fields=[
                        ("name", models.TextField(primary_key=True, serialize=False, verbose_name="name")),
                        ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                        ("paused_at", models.DateTimeField(null=True)),
                        ("resume_at", models.DateTimeField(null=True)),
                        ("tokens_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                        ("tokens", models.FloatField(db_default=0.0)),
                        ("max_running", models.IntegerField(null=True)),
                        ("rate_limit", models.IntegerField(help_text="Jobs started in each period.", null=True)),
                        ("rate_period_seconds", models.FloatField(null=True)),
                        ("rate_burst", models.IntegerField(null=True)),
                        ("paused_by", models.TextField(db_default="")),
                        ("pause_reason", models.TextField(db_default="")),
                    ],
                    options={
                        "verbose_name": "queue",
                        "verbose_name_plural": "queues",
                        "db_table": "pgqueue_queues",
                        "permissions": [("pause_queue", "Can pause and resume queues")],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("name", ""), _negated=True), name="pgqueue_queues_name"
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Schedule",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("next_at", models.DateTimeField(verbose_name="next at")),
                        ("last_at", models.DateTimeField(null=True)),
                        ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                        (
                            "edited_at",
                            models.DateTimeField(
                                help_text="Set by an edit in the admin, which wins over code.", null=True
                            ),
                        ),
                        ("last_job_id", models.BigIntegerField(null=True)),
                        ("every_seconds", models.FloatField(null=True)),
                        ("jitter_seconds", models.FloatField(db_default=0.0)),
                        ("catch_up_limit", models.IntegerField(db_default=100)),
                        ("is_enabled", models.BooleanField(db_default=True)),
                        ("name", models.TextField(unique=True, verbose_name="name")),
                        ("task", models.TextField(verbose_name="task")),
                        ("cron", models.TextField(db_default="")),
                        ("timezone", models.TextField(db_default="UTC")),
                        (
                            "catch_up",
                            models.TextField(db_default="last", help_text="After downtime: none, last or all."),
                        ),
                        (
                            "source",
                            models.TextField(db_default="code", help_text="Declared in code or made in the admin."),
                        ),
                        ("args", models.JSONField(db_default=models.Value([], models.JSONField()))),
                        ("kwargs", models.JSONField(db_default=models.Value({}, models.JSONField()))),
                        ("options", models.JSONField(db_default=models.Value({}, models.JSONField()))),
                    ],
                    options={
                        "verbose_name": "schedule",
                        "verbose_name_plural": "schedules",
                        "db_table": "pgqueue_schedules",
                        "indexes": [
                            models.Index(
                                condition=models.Q(("is_enabled", True)),
                                fields=["next_at"],
                                name="pgqueue_schedules_due",
                            )
                        ],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("cron", ""), ("every_seconds__gt", 0)),
                                    models.Q(models.Q(("cron", ""), _negated=True), ("every_seconds", None)),
                                    _connector="OR",
                                ),
                                name="pgqueue_schedules_cron_or_every",
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Stat",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("minute", models.DateTimeField()),
                        ("succeeded", models.BigIntegerField(db_default=0)),
                        ("failed", models.BigIntegerField(db_default=0)),
                        ("retried", models.BigIntegerField(db_default=0)),
                        ("died", models.BigIntegerField(db_default=0)),
                        ("lost", models.BigIntegerField(db_default=0)),
                        ("wait_seconds", models.FloatField(db_default=0.0)),
                        ("run_seconds", models.FloatField(db_default=0.0)),
                        ("queue", models.TextField()),
                        ("task", models.TextField()),
                    ],
                    options={
                        "verbose_name": "statistic",
                        "verbose_name_plural": "statistics",
                        "db_table": "pgqueue_stats",
                        "constraints": [
                            models.UniqueConstraint(fields=("minute", "queue", "task"), name="pgqueue_stats_minute")
                        ],
                    },
                ),
            ]
        ),
    ]
