"""All tables, with what Django cannot say of them in the folder ``sql``: partitions, storage options and functions."""

import datetime as dt

from django.db import migrations, models
from django.db.models.functions import Now
from django.db.models.lookups import Exact, LessThanOrEqual

from django_pgqueue.migrations._base import NumberIds, QueueMigration, RunFile
from django_pgqueue.models import NO_COUNTS, ErrorGroup, Negative, NumberArray, TextArray

STATUSES = ["scheduled", "queued", "limited", "running", "reserved", "blocked"]
WORKFLOW_STATUSES = ["open", "succeeded", "failed", "killed"]
STAGE_STATUSES = ["blocked", "open", "ended", "skipped"]
ON_DEATHS = ["wait", "stop", "go_on"]
OPENS_WHENS = ["succeeded", "ended", "died"]
REASONS = ["exhausted", "discarded", "lost", "killed", "expired", "unknown_task", "superseded"]
CATCH_UPS = ["last", "none", "all"]

NOW = Now()
NEVER, LATEST = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)
EMPTY_LIST = models.Value([], models.JSONField())
EMPTY_OBJECT = models.Value({}, models.JSONField())


def is_array(column: str) -> models.Q:
    kind = models.Func(models.F(column), function="jsonb_typeof", output_field=models.TextField())
    return models.Q(Exact(kind, models.Value("array")))


def is_at_most(column: str, longest: int) -> models.Q:
    length = models.Func(models.F(column), function="char_length", output_field=models.IntegerField())
    return models.Q(LessThanOrEqual(length, models.Value(longest)))


def is_instant(column: str) -> models.Q:
    return models.Q((f"{column}__range", (NEVER, LATEST)))


class Migration(QueueMigration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("run_at", models.DateTimeField("run at", db_default=NOW, help_text="Not started before.")),
                ("enqueued_at", models.DateTimeField("enqueued at", db_default=NOW)),
                ("schedule_id", models.BigIntegerField(null=True)),
                ("parent_id", models.BigIntegerField(null=True, help_text="The job that enqueued it.")),
                (
                    "stage_id",
                    models.BigIntegerField(null=True, help_text="The stage of a workflow that it is a member of."),
                ),
                ("expires_at", models.DateTimeField(null=True, help_text="Not started after.")),
                ("kill_requested_at", models.DateTimeField(null=True)),
                ("lease_seconds", models.IntegerField(db_default=30)),
                ("timeout_seconds", models.IntegerField(db_default=0, help_text="0 means no limit.")),
                (
                    "unique_hold_seconds",
                    models.IntegerField(db_default=0, help_text="Seconds for which the key is held after success."),
                ),
                (
                    "keep_seconds",
                    models.IntegerField(null=True, help_text="For how long; empty: as long as any succeeded job."),
                ),
                (
                    "priority",
                    models.SmallIntegerField("priority", db_default=0, help_text="-100 to 100; larger runs sooner."),
                ),
                ("max_attempts", models.SmallIntegerField(db_default=10)),
                ("lost", models.SmallIntegerField(db_default=0, help_text="How often a worker died with it.")),
                ("snoozes", models.SmallIntegerField(db_default=0, help_text="How often it asked to run later.")),
                (
                    "concurrency_limit",
                    models.SmallIntegerField(
                        null=True, help_text="Maximum number of jobs of the key that run at once."
                    ),
                ),
                (
                    "concurrency_slot",
                    models.SmallIntegerField(null=True, help_text="1 to the limit, once it is admitted."),
                ),
                ("keep", models.BooleanField(db_default=True, help_text="Keep in succeeded jobs after success.")),
                (
                    "concurrency_strict",
                    models.BooleanField(db_default=False, help_text="Keeps its slot while it backs off."),
                ),
                (
                    "has_waiters",
                    models.BooleanField(
                        db_default=False, help_text="True while a caller waits for its end, which is announced."
                    ),
                ),
                (
                    "first_started_at",
                    models.DateTimeField(db_default=NEVER, help_text="First attempt; 1970 means not yet."),
                ),
                (
                    "started_at",
                    models.DateTimeField("started at", db_default=NEVER, help_text="Latest attempt, when claimed."),
                ),
                (
                    "lease_until",
                    models.DateTimeField(db_default=NEVER, help_text="A silent worker keeps the job until then."),
                ),
                (
                    "lease_token",
                    models.BigIntegerField(db_default=0, help_text="Proves the lease; 0 means not running."),
                ),
                ("worker_id", models.BigIntegerField(db_default=0, help_text="The worker process that runs it.")),
                ("attempts", models.SmallIntegerField("attempts", db_default=0, help_text="Counted when claimed.")),
                (
                    "status",
                    models.TextField("status", choices=[(status, status) for status in STATUSES], db_default="queued"),
                ),
                ("queue", models.TextField("queue", db_default="default")),
                ("task", models.TextField("task")),
                (
                    "backend",
                    models.TextField(db_default="", help_text="Alias in TASKS, for jobs of the Tasks framework."),
                ),
                ("args", models.JSONField(db_default=EMPTY_LIST)),
                ("kwargs", models.JSONField(db_default=EMPTY_OBJECT)),
                ("unique_key", models.TextField(null=True)),
                ("unique_until", models.TextField(null=True)),
                ("concurrency_key", models.TextField(null=True)),
                ("fair_key", models.TextField(null=True)),
                ("killed_by", models.TextField(null=True)),
                ("tags", TextArray(null=True, help_text="By which people find it.")),
                ("metadata", models.JSONField(db_default=EMPTY_OBJECT)),
                ("progress", models.JSONField(null=True)),
                ("errors", models.JSONField(db_default=EMPTY_LIST, help_text="One entry for each failed attempt.")),
            ],
            options={
                "db_table": "pgqueue_jobs",
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": [
                    ("enqueue_job", "Can enqueue jobs"),
                    ("run_now_job", "Can run jobs now"),
                    ("kill_job", "Can kill jobs"),
                    ("move_job", "Can move jobs to another queue"),
                    ("set_priority_job", "Can change the priority of jobs"),
                ],
                "indexes": [
                    models.Index(
                        models.F("queue"),
                        Negative("priority"),
                        models.F("run_at"),
                        models.F("id"),
                        name="pgqueue_jobs_claim",
                        condition=models.Q(status="queued"),
                    ),
                    models.Index(
                        fields=["worker_id"], name="pgqueue_jobs_running", condition=models.Q(status="running")
                    ),
                    models.Index(
                        fields=["run_at"],
                        name="pgqueue_jobs_due",
                        condition=models.Q(status__in=["scheduled", "reserved"]),
                    ),
                    models.Index(
                        models.F("concurrency_key"),
                        Negative("priority"),
                        models.F("run_at"),
                        models.F("id"),
                        name="pgqueue_jobs_limited",
                        condition=models.Q(status="limited"),
                    ),
                    models.Index(
                        models.F("queue"),
                        models.F("fair_key"),
                        Negative("priority"),
                        models.F("run_at"),
                        name="pgqueue_jobs_fair",
                        condition=models.Q(fair_key__isnull=False, status__in=["queued", "limited"]),
                    ),
                    models.Index(
                        fields=["id"], name="pgqueue_jobs_started", condition=models.Q(unique_until="started")
                    ),
                    models.Index(
                        fields=["expires_at"], name="pgqueue_jobs_expiry", condition=models.Q(expires_at__isnull=False)
                    ),
                    models.Index(
                        fields=["stage_id", "id"],
                        name="pgqueue_jobs_stage",
                        condition=models.Q(stage_id__isnull=False),
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["unique_key"],
                        name="pgqueue_jobs_unique",
                        condition=models.Q(unique_until__in=["end", "start"]),
                    ),
                    models.UniqueConstraint(
                        fields=["concurrency_key", "concurrency_slot"],
                        name="pgqueue_jobs_slot",
                        condition=models.Q(concurrency_slot__isnull=False),
                    ),
                    models.CheckConstraint(condition=models.Q(status__in=STATUSES), name="pgqueue_jobs_status"),
                    models.CheckConstraint(
                        condition=models.Q(status="running") & ~models.Q(lease_token=0)
                        | ~models.Q(status="running") & models.Q(lease_token=0),
                        name="pgqueue_jobs_running_has_lease",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(priority__range=(-100, 100)), name="pgqueue_jobs_priority"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(attempts__gte=0, max_attempts__gte=1, lost__gte=0, snoozes__gte=0),
                        name="pgqueue_jobs_attempts",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(lease_seconds__gte=1, timeout_seconds__gte=0), name="pgqueue_jobs_durations"
                    ),
                    models.CheckConstraint(
                        condition=~models.Q(queue="") & ~models.Q(task=""), name="pgqueue_jobs_names"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(run_at__range=(NEVER, LATEST)), name="pgqueue_jobs_run_at"
                    ),
                    models.CheckConstraint(condition=is_array("errors"), name="pgqueue_jobs_errors"),
                    models.CheckConstraint(
                        condition=is_at_most("queue", 128)
                        & is_at_most("task", 500)
                        & is_at_most("backend", 500)
                        & is_at_most("unique_key", 500)
                        & is_at_most("concurrency_key", 500)
                        & is_at_most("fair_key", 500),
                        name="pgqueue_jobs_lengths",
                    ),
                    models.CheckConstraint(
                        condition=is_instant("enqueued_at")
                        & is_instant("first_started_at")
                        & is_instant("started_at")
                        & is_instant("lease_until")
                        & is_instant("expires_at")
                        & is_instant("kill_requested_at"),
                        name="pgqueue_jobs_instants",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(unique_key=None, unique_until=None)
                        | models.Q(
                            unique_key__isnull=False,
                            unique_until__isnull=False,
                            unique_until__in=["end", "start", "started", "given_up"],
                        ),
                        name="pgqueue_jobs_unique_until",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(concurrency_key=None, concurrency_slot=None)
                        | models.Q(
                            concurrency_key__isnull=False, concurrency_limit__isnull=False, concurrency_limit__gte=1
                        )
                        & ~models.Q(concurrency_key="")
                        & (
                            models.Q(
                                concurrency_slot__isnull=False,
                                concurrency_slot__range=(1, models.F("concurrency_limit")),
                            )
                            | models.Q(status__in=["scheduled", "limited", "reserved", "blocked"])
                        ),
                        name="pgqueue_jobs_admitted",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DeadJob",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("died_at", models.DateTimeField("died at", db_default=NOW)),
                ("run_at", models.DateTimeField()),
                ("enqueued_at", models.DateTimeField("enqueued at")),
                (
                    "first_started_at",
                    models.DateTimeField(db_default=NEVER, help_text="First attempt; 1970 means not yet."),
                ),
                (
                    "started_at",
                    models.DateTimeField("started at", db_default=NEVER, help_text="Latest attempt, when claimed."),
                ),
                ("worker_id", models.BigIntegerField(db_default=0, help_text="The worker process that runs it.")),
                ("schedule_id", models.BigIntegerField(null=True)),
                ("parent_id", models.BigIntegerField(null=True, help_text="The job that enqueued it.")),
                (
                    "stage_id",
                    models.BigIntegerField(null=True, help_text="The stage of a workflow that it is a member of."),
                ),
                ("expires_at", models.DateTimeField(null=True, help_text="Not started after.")),
                ("lease_seconds", models.IntegerField(db_default=30)),
                ("timeout_seconds", models.IntegerField(db_default=0, help_text="0 means no limit.")),
                (
                    "priority",
                    models.SmallIntegerField("priority", db_default=0, help_text="-100 to 100; larger runs sooner."),
                ),
                ("attempts", models.SmallIntegerField("attempts", db_default=0, help_text="Counted when claimed.")),
                ("max_attempts", models.SmallIntegerField(db_default=10)),
                ("lost", models.SmallIntegerField(db_default=0, help_text="How often a worker died with it.")),
                ("snoozes", models.SmallIntegerField(db_default=0, help_text="How often it asked to run later.")),
                (
                    "concurrency_limit",
                    models.SmallIntegerField(
                        null=True, help_text="Maximum number of jobs of the key that run at once."
                    ),
                ),
                ("keep", models.BooleanField(db_default=True, help_text="Keep in succeeded jobs after success.")),
                (
                    "reason",
                    models.TextField("reason", choices=[(reason, reason.replace("_", " ")) for reason in REASONS]),
                ),
                ("queue", models.TextField("queue")),
                ("task", models.TextField("task")),
                (
                    "backend",
                    models.TextField(db_default="", help_text="Alias in TASKS, for jobs of the Tasks framework."),
                ),
                ("args", models.JSONField(db_default=EMPTY_LIST)),
                ("kwargs", models.JSONField(db_default=EMPTY_OBJECT)),
                ("unique_key", models.TextField(null=True)),
                ("unique_until", models.TextField(null=True)),
                ("concurrency_key", models.TextField(null=True)),
                ("fair_key", models.TextField(null=True)),
                ("killed_by", models.TextField(null=True)),
                ("tags", TextArray(null=True, help_text="By which people find it.")),
                ("metadata", models.JSONField(db_default=EMPTY_OBJECT)),
                ("progress", models.JSONField(null=True)),
                ("errors", models.JSONField(db_default=EMPTY_LIST, help_text="One entry for each failed attempt.")),
                (
                    "concurrency_strict",
                    models.BooleanField(db_default=False, help_text="Keeps its slot while it backs off."),
                ),
                (
                    "unique_hold_seconds",
                    models.IntegerField(db_default=0, help_text="Seconds for which the key is held after success."),
                ),
                (
                    "keep_seconds",
                    models.IntegerField(null=True, help_text="For how long; empty: as long as any succeeded job."),
                ),
                (
                    "cause",
                    models.GeneratedField(
                        expression=ErrorGroup(),
                        output_field=models.BigIntegerField(),
                        db_persist=True,
                        help_text="The same for jobs that died of the same.",
                    ),
                ),
            ],
            options={
                "db_table": "pgqueue_dead_jobs",
                "verbose_name": "dead job",
                "verbose_name_plural": "dead jobs",
                "permissions": [("retry_deadjob", "Can retry dead jobs")],
                "indexes": [
                    models.Index(fields=["-died_at", "-id"], name="pgqueue_dead_jobs_age"),
                    models.Index(fields=["reason", "-died_at", "-id"], name="pgqueue_dead_jobs_reason"),
                    models.Index(fields=["queue", "-died_at", "-id"], name="pgqueue_dead_jobs_queue"),
                    models.Index(fields=["task", "-died_at", "-id"], name="pgqueue_dead_jobs_task"),
                    models.Index(fields=["cause", "-died_at", "-id"], name="pgqueue_dead_jobs_cause"),
                    models.Index(
                        fields=["schedule_id", "-id"],
                        name="pgqueue_dead_jobs_schedule",
                        condition=models.Q(schedule_id__isnull=False),
                    ),
                    models.Index(
                        fields=["stage_id", "id"],
                        name="pgqueue_dead_jobs_stage",
                        condition=models.Q(stage_id__isnull=False),
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(reason__in=REASONS), name="pgqueue_dead_jobs_known_reason"
                    ),
                ],
            },
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="SucceededJob",
                    fields=[
                        ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                        ("succeeded_at", models.DateTimeField("succeeded at", db_default=NOW)),
                        ("enqueued_at", models.DateTimeField("enqueued at")),
                        ("run_at", models.DateTimeField()),
                        ("first_started_at", models.DateTimeField()),
                        ("started_at", models.DateTimeField()),
                        ("worker_id", models.BigIntegerField()),
                        ("schedule_id", models.BigIntegerField(null=True)),
                        ("parent_id", models.BigIntegerField(null=True, help_text="The job that enqueued it.")),
                        (
                            "stage_id",
                            models.BigIntegerField(
                                null=True, help_text="The stage of a workflow that it is a member of."
                            ),
                        ),
                        (
                            "run_seconds",
                            models.FloatField("run time", help_text="Of the attempt that succeeded, in seconds."),
                        ),
                        ("priority", models.SmallIntegerField()),
                        ("attempts", models.SmallIntegerField("attempts")),
                        ("lost", models.SmallIntegerField()),
                        ("queue", models.TextField("queue")),
                        ("task", models.TextField("task")),
                        ("backend", models.TextField()),
                        ("args", models.JSONField()),
                        ("kwargs", models.JSONField()),
                        ("result", models.JSONField(null=True)),
                        ("tags", TextArray(null=True, help_text="By which people find it.")),
                        ("metadata", models.JSONField()),
                        ("progress", models.JSONField(null=True)),
                        ("errors", models.JSONField()),
                        (
                            "prune_at",
                            models.DateTimeField(null=True, help_text="Removed after that; empty: with its partition."),
                        ),
                    ],
                    options={
                        "db_table": "pgqueue_succeeded_jobs",
                        "verbose_name": "succeeded job",
                        "verbose_name_plural": "succeeded jobs",
                    },
                ),
            ],
            database_operations=[
                RunFile("create_succeeded_jobs", reverse_sql="DROP TABLE pgqueue_succeeded_jobs"),
            ],
        ),
        migrations.AddIndex(
            model_name="succeededjob",
            index=models.Index(
                fields=["prune_at"], name="pgqueue_succeeded_prune", condition=models.Q(prune_at__isnull=False)
            ),
        ),
        migrations.AddIndex(
            model_name="succeededjob",
            index=models.Index(
                fields=["schedule_id", "-id"],
                name="pgqueue_succeeded_schedule",
                condition=models.Q(schedule_id__isnull=False),
            ),
        ),
        RunFile("create_partitions"),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.TextField("name", primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(db_default=NOW)),
                ("paused_at", models.DateTimeField(null=True)),
                ("resume_at", models.DateTimeField(null=True)),
                ("limited_at", models.DateTimeField(null=True)),
                ("tokens_at", models.DateTimeField(db_default=NOW)),
                ("tokens", models.FloatField(db_default=0.0)),
                ("max_running", models.IntegerField(null=True)),
                ("rate_limit", models.IntegerField(null=True, help_text="Jobs started in each period.")),
                ("rate_period_seconds", models.FloatField(null=True)),
                ("rate_burst", models.IntegerField(null=True)),
                ("paused_by", models.TextField(db_default="")),
                ("pause_reason", models.TextField(db_default="")),
                ("limited_by", models.TextField(db_default="")),
            ],
            options={
                "db_table": "pgqueue_queues",
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "permissions": [("pause_queue", "Can pause and resume queues"), ("limit_queue", "Can limit queues")],
                "indexes": [
                    models.Index(
                        fields=["name"],
                        name="pgqueue_queues_limited",
                        condition=models.Q(paused_at__isnull=False)
                        | models.Q(max_running__isnull=False)
                        | models.Q(rate_limit__isnull=False),
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(condition=~models.Q(name=""), name="pgqueue_queues_name"),
                    models.CheckConstraint(
                        condition=models.Q(paused_at__isnull=False)
                        | models.Q(resume_at=None, paused_by="", pause_reason=""),
                        name="pgqueue_queues_pause",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(limited_at__isnull=False) | models.Q(limited_by=""),
                        name="pgqueue_queues_limited_by",
                    ),
                    models.CheckConstraint(condition=models.Q(max_running__gte=1), name="pgqueue_queues_max_running"),
                    models.CheckConstraint(
                        condition=models.Q(rate_limit=None, rate_period_seconds=None, rate_burst=None)
                        | models.Q(
                            rate_limit__isnull=False,
                            rate_limit__gte=1,
                            rate_period_seconds__isnull=False,
                            rate_period_seconds__gt=0,
                            rate_period_seconds__lte=365 * 24 * 3600,
                            rate_burst__isnull=False,
                            rate_burst__gte=1,
                        ),
                        name="pgqueue_queues_rate",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueHead",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("run_at", models.DateTimeField(help_text="Of the first job, at that time.")),
                ("priority", models.SmallIntegerField()),
                ("queue", models.TextField()),
            ],
            options={
                "db_table": "pgqueue_queue_heads",
                "verbose_name": "head",
                "verbose_name_plural": "heads",
                "constraints": [
                    models.UniqueConstraint(fields=["queue", "priority"], name="pgqueue_queue_heads_place")
                ],
            },
        ),
        migrations.CreateModel(
            name="OnceKey",
            fields=[
                ("key", models.TextField("key", primary_key=True, serialize=False)),
                ("taken_at", models.DateTimeField("taken at", db_default=NOW)),
            ],
            options={
                "db_table": "pgqueue_once_keys",
                "verbose_name": "once key",
                "verbose_name_plural": "once keys",
                "default_permissions": ("view",),
                "indexes": [models.Index(fields=["taken_at"], name="pgqueue_once_keys_age")],
                "constraints": [
                    models.CheckConstraint(
                        condition=~models.Q(key="") & is_at_most("key", 500), name="pgqueue_once_keys_length"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("next_at", models.DateTimeField("next at")),
                ("last_at", models.DateTimeField("last at", null=True, help_text="The latest tick that became a job.")),
                ("created_at", models.DateTimeField("created at", db_default=NOW)),
                (
                    "edited_at",
                    models.DateTimeField(
                        "edited at", null=True, help_text="Set by an edit in the admin, which wins over code."
                    ),
                ),
                ("last_job_id", models.BigIntegerField("last job", null=True)),
                ("every_seconds", models.FloatField("every", null=True, blank=True)),
                ("jitter_seconds", models.FloatField("jitter", default=0.0, db_default=0.0)),
                ("catch_up_limit", models.IntegerField("catch up at most", default=100, db_default=100)),
                ("is_enabled", models.BooleanField("is enabled", default=True, db_default=True)),
                ("name", models.TextField("name", unique=True)),
                ("task", models.TextField("task")),
                ("cron", models.TextField("cron", blank=True, default="", db_default="")),
                ("timezone", models.TextField("time zone", default="UTC", db_default="UTC")),
                (
                    "catch_up",
                    models.TextField(
                        "catch up", choices=[(word, word) for word in CATCH_UPS], default="last", db_default="last"
                    ),
                ),
                (
                    "source",
                    models.TextField(
                        "source",
                        default="admin",
                        db_default="admin",
                        help_text="Declared in code or made in the admin.",
                    ),
                ),
                ("args", models.JSONField("args", blank=True, default=list, db_default=EMPTY_LIST)),
                ("kwargs", models.JSONField("kwargs", blank=True, default=dict, db_default=EMPTY_OBJECT)),
                ("options", models.JSONField("options", blank=True, default=dict, db_default=EMPTY_OBJECT)),
                (
                    "declared_at",
                    models.DateTimeField(
                        "declared at", null=True, help_text="When a worker last found it in its code, to ten minutes."
                    ),
                ),
                (
                    "last_error",
                    models.TextField(
                        "last error",
                        blank=True,
                        default="",
                        db_default="",
                        help_text="Why its latest tick became no job.",
                    ),
                ),
                ("paused_by", models.TextField("paused by", blank=True, default="", db_default="")),
            ],
            options={
                "db_table": "pgqueue_schedules",
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "ordering": ["name"],
                "permissions": [
                    ("pause_schedule", "Can pause and resume schedules"),
                    ("run_schedule", "Can run schedules now"),
                ],
                "indexes": [
                    models.Index(fields=["next_at"], name="pgqueue_schedules_due", condition=models.Q(is_enabled=True)),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(cron="", every_seconds__isnull=False, every_seconds__gt=0)
                        | ~models.Q(cron="") & models.Q(every_seconds=None),
                        name="pgqueue_schedules_cron_or_every",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(catch_up__in=CATCH_UPS, catch_up_limit__gte=1, jitter_seconds__gte=0),
                        name="pgqueue_schedules_catch_up",
                    ),
                    models.CheckConstraint(
                        condition=~models.Q(name="") & ~models.Q(task=""), name="pgqueue_schedules_names"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "supervisor_id",
                    models.BigIntegerField(help_text="Shared by the processes of one pgqueue_worker command."),
                ),
                ("started_at", models.DateTimeField("started at", db_default=NOW)),
                ("heartbeat_at", models.DateTimeField("last heartbeat", db_default=NOW)),
                ("lease_until", models.DateTimeField()),
                ("pid", models.IntegerField()),
                ("concurrency", models.IntegerField()),
                ("host", models.TextField("host")),
                ("name", models.TextField("name", db_default="")),
                ("version", models.TextField()),
                ("queues", models.JSONField(db_default=EMPTY_LIST, help_text="Empty means all.")),
                ("metadata", models.JSONField(db_default=EMPTY_OBJECT)),
                (
                    "session_pid",
                    models.IntegerField(
                        db_default=0,
                        help_text="The server process of the session in which its command listens; 0: it polls.",
                    ),
                ),
                (
                    "memory_bytes",
                    models.BigIntegerField(
                        "memory", db_default=0, help_text="Resident, at the last heartbeat; 0: not known."
                    ),
                ),
                ("stop_requested_at", models.DateTimeField("asked to stop at", null=True)),
                ("stop_requested_by", models.TextField(db_default="")),
                ("quiet_since", models.DateTimeField("quiet since", null=True)),
                ("quiet_by", models.TextField(db_default="")),
            ],
            options={
                "db_table": "pgqueue_workers",
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "permissions": [
                    ("stop_worker", "Can ask workers to stop"),
                    ("quiet_worker", "Can make workers quiet"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Stat",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("minute", models.DateTimeField(help_text="In which the attempts ended.")),
                ("succeeded", models.BigIntegerField(db_default=0)),
                (
                    "failed",
                    models.BigIntegerField(db_default=0, help_text="Attempts that failed, for good or not."),
                ),
                (
                    "retried",
                    models.BigIntegerField(db_default=0, help_text="Of those that failed: the job runs again."),
                ),
                ("died", models.BigIntegerField(db_default=0, help_text="Jobs that went to the dead jobs.")),
                ("lost", models.BigIntegerField(db_default=0, help_text="Attempts whose worker died.")),
                (
                    "wait_seconds",
                    models.FloatField(db_default=0.0, help_text="From run_at to the claim, of all these attempts."),
                ),
                ("run_seconds", models.FloatField(db_default=0.0, help_text="Of all these attempts.")),
                ("queue", models.TextField()),
                ("task", models.TextField()),
                (
                    "stale",
                    models.BigIntegerField(db_default=0, help_text="Results that were dropped: the lease was lost."),
                ),
                (
                    "wait_buckets",
                    NumberArray(db_default=NO_COUNTS, help_text="How many waited up to 1 ms, up to 2.5 ms, and so on."),
                ),
                ("run_buckets", NumberArray(db_default=NO_COUNTS, help_text="The same of how long they ran.")),
            ],
            options={
                "db_table": "pgqueue_stats",
                "verbose_name": "statistic",
                "verbose_name_plural": "statistics",
                "constraints": [
                    models.UniqueConstraint(fields=["minute", "queue", "task"], name="pgqueue_stats_minute")
                ],
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
            bases=("pgqueue.stat",),
        ),
        migrations.CreateModel(
            name="BulkAction",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField("created at", db_default=NOW)),
                ("started_at", models.DateTimeField("started at", null=True)),
                ("next_at", models.DateTimeField(db_default=NOW, help_text="The next slice is not before.")),
                ("ended_at", models.DateTimeField("ended at", null=True)),
                ("stopped_at", models.DateTimeField("stopped at", null=True)),
                ("after_id", models.BigIntegerField(db_default=0, help_text="The next slice begins above this id.")),
                (
                    "until_id",
                    models.BigIntegerField(null=True, help_text="It ends with this id: the newest when it began."),
                ),
                ("looked", models.BigIntegerField("looked at", db_default=0)),
                ("done", models.BigIntegerField("done", db_default=0)),
                ("expected", models.BigIntegerField(null=True, help_text="How many matched when it was asked for.")),
                ("rate", models.FloatField("rate", null=True, help_text="Jobs a second; empty: as fast as it goes.")),
                ("action", models.TextField("action")),
                ("source", models.TextField(help_text="Which table: live, dead or succeeded.")),
                ("by", models.TextField("by")),
                ("stopped_by", models.TextField("stopped by", db_default="")),
                ("last_error", models.TextField("last error", db_default="")),
                ("filter", models.JSONField("filter", db_default=EMPTY_OBJECT)),
                (
                    "params",
                    models.JSONField(
                        db_default=EMPTY_OBJECT, help_text="What else the action needs: a queue, a priority."
                    ),
                ),
                ("outcome", models.JSONField(db_default=EMPTY_OBJECT, help_text="How many, by their change.")),
                (
                    "skipped",
                    models.JSONField("left alone", db_default=EMPTY_OBJECT, help_text="How many, by the reason."),
                ),
            ],
            options={
                "db_table": "pgqueue_bulk_actions",
                "verbose_name": "bulk action",
                "verbose_name_plural": "bulk actions",
                "default_permissions": ("view",),
                "permissions": [("stop_bulkaction", "Can stop bulk actions")],
                "indexes": [
                    models.Index(
                        fields=["next_at"], name="pgqueue_bulk_actions_open", condition=models.Q(ended_at=None)
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(rate=None) | models.Q(rate__isnull=False, rate__gt=0),
                        name="pgqueue_bulk_actions_rate",
                    ),
                ],
            },
        ),
        NumberIds("Job"),
        migrations.CreateModel(
            name="Workflow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("begun_at", models.DateTimeField("begun at", db_default=NOW)),
                ("ended_at", models.DateTimeField("ended at", null=True)),
                (
                    "deadline_at",
                    models.DateTimeField("deadline", null=True, help_text="It fails if it is still open then."),
                ),
                (
                    "parent_stage_id",
                    models.BigIntegerField(
                        null=True, help_text="The stage of another workflow that is not over before this one."
                    ),
                ),
                (
                    "status",
                    models.TextField(
                        "status", choices=[(status, status) for status in WORKFLOW_STATUSES], db_default="open"
                    ),
                ),
                (
                    "on_death",
                    models.TextField(
                        "on death", choices=[(rule, rule.replace("_", " ")) for rule in ON_DEATHS], db_default="wait"
                    ),
                ),
                ("name", models.TextField("name")),
                (
                    "unique_key",
                    models.TextField("unique key", null=True, help_text="Of one open workflow at a time."),
                ),
                (
                    "ended_by",
                    models.TextField(
                        "ended by",
                        db_default="",
                        help_text="User who has killed it; empty if its deadline has ended it.",
                    ),
                ),
                (
                    "context",
                    models.JSONField("context", db_default=EMPTY_OBJECT, help_text="For all members to read."),
                ),
                ("keeps_calls", models.BooleanField(db_default=False, help_text="Stages can be run again.")),
            ],
            options={
                "db_table": "pgqueue_workflows",
                "verbose_name": "workflow",
                "verbose_name_plural": "workflows",
                "default_permissions": ("view",),
                "permissions": [
                    ("kill_workflow", "Can kill workflows"),
                    ("retry_workflow", "Can retry dead members of workflows"),
                    ("skip_stage", "Can skip stages of workflows"),
                    ("seal_stage", "Can seal stages of workflows"),
                    ("rerun_stage", "Can run stages of workflows again"),
                ],
                "indexes": [
                    models.Index(
                        fields=["deadline_at"],
                        name="pgqueue_workflows_deadline",
                        condition=models.Q(status="open", deadline_at__isnull=False),
                    ),
                    models.Index(
                        fields=["parent_stage_id"],
                        name="pgqueue_workflows_parent",
                        condition=models.Q(parent_stage_id__isnull=False),
                    ),
                    models.Index(
                        fields=["ended_at"],
                        name="pgqueue_workflows_ended",
                        condition=models.Q(ended_at__isnull=False),
                    ),
                    models.Index(fields=["name", "-id"], name="pgqueue_workflows_name"),
                    models.Index(fields=["status", "-id"], name="pgqueue_workflows_status"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["unique_key"],
                        name="pgqueue_workflows_unique",
                        condition=models.Q(status="open", unique_key__isnull=False),
                    ),
                    models.CheckConstraint(
                        condition=models.Q(status__in=WORKFLOW_STATUSES), name="pgqueue_workflows_known_status"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(on_death__in=ON_DEATHS), name="pgqueue_workflows_on_death"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(status="open", ended_at=None)
                        | ~models.Q(status="open") & models.Q(ended_at__isnull=False),
                        name="pgqueue_workflows_end",
                    ),
                    models.CheckConstraint(
                        condition=~models.Q(name="") & is_at_most("name", 500) & is_at_most("unique_key", 500),
                        name="pgqueue_workflows_lengths",
                    ),
                ],
            },
        ),
        NumberIds("Workflow", shift=42),
        migrations.CreateModel(
            name="Stage",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("opened_at", models.DateTimeField("opened at", null=True)),
                ("ended_at", models.DateTimeField("ended at", null=True)),
                (
                    "moves_after",
                    models.BigIntegerField(
                        null=True,
                        help_text="Members above this id are still to be opened, or removed; -1: left for later; empty: none.",
                    ),
                ),
                (
                    "members",
                    models.IntegerField("members", db_default=0, help_text="With which the workflow was begun."),
                ),
                (
                    "died",
                    models.IntegerField("died", db_default=0, help_text="Members that were dead when it ended."),
                ),
                (
                    "is_sealed",
                    models.BooleanField("sealed", db_default=True, help_text="Closed to new members from outside."),
                ),
                (
                    "status",
                    models.TextField(
                        "status", choices=[(status, status) for status in STAGE_STATUSES], db_default="blocked"
                    ),
                ),
                (
                    "opens_when",
                    models.TextField(
                        "opens when", choices=[(when, when) for when in OPENS_WHENS], db_default="succeeded"
                    ),
                ),
                ("name", models.TextField("name")),
                (
                    "killed_by",
                    models.TextField("killed by", null=True, help_text="User who has killed it; null: it was not."),
                ),
                (
                    "rerun_by",
                    models.TextField(null=True, help_text="User who has run it again last; null: it was not."),
                ),
                (
                    "previous",
                    models.JSONField(null=True, help_text="Arguments that take the result of the member before."),
                ),
            ],
            options={
                "db_table": "pgqueue_stages",
                "verbose_name": "stage",
                "verbose_name_plural": "stages",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["id"], name="pgqueue_stages_open", condition=models.Q(status="open")),
                    models.Index(
                        fields=["id"],
                        name="pgqueue_stages_unended",
                        condition=models.Q(status__in=["blocked", "open"]),
                    ),
                    models.Index(
                        fields=["id"], name="pgqueue_stages_moving", condition=models.Q(moves_after__isnull=False)
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(status__in=STAGE_STATUSES), name="pgqueue_stages_known_status"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(opens_when__in=OPENS_WHENS), name="pgqueue_stages_opens_when"
                    ),
                    models.CheckConstraint(
                        condition=~models.Q(name="") & is_at_most("name", 500), name="pgqueue_stages_name"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="StageEdge",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("from_id", models.BigIntegerField()),
                ("to_id", models.BigIntegerField()),
                (
                    "outcome",
                    models.TextField(
                        null=True, help_text="Empty until the stage before is over: succeeded, died, skipped."
                    ),
                ),
            ],
            options={
                "db_table": "pgqueue_stage_edges",
                "verbose_name": "edge between stages",
                "verbose_name_plural": "edges between stages",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        fields=["to_id"], name="pgqueue_stage_edges_pending", condition=models.Q(outcome=None)
                    ),
                    models.Index(
                        fields=["to_id"],
                        name="pgqueue_stage_edges_bad",
                        condition=models.Q(outcome__in=["died", "skipped"]),
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=["from_id", "to_id"], name="pgqueue_stage_edges_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="StageResult",
            fields=[
                ("job_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("stage_id", models.BigIntegerField()),
                ("result", models.JSONField(null=True)),
            ],
            options={
                "db_table": "pgqueue_stage_results",
                "verbose_name": "result of a member",
                "verbose_name_plural": "results of members",
                "default_permissions": (),
                "indexes": [models.Index(fields=["stage_id", "job_id"], name="pgqueue_stage_results_stage")],
            },
        ),
        migrations.CreateModel(
            name="StageAddition",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("stage_id", models.BigIntegerField()),
                ("members", models.IntegerField()),
            ],
            options={
                "db_table": "pgqueue_stage_additions",
                "verbose_name": "addition to a stage",
                "verbose_name_plural": "additions to stages",
                "default_permissions": (),
                "indexes": [models.Index(fields=["stage_id"], name="pgqueue_stage_additions_stage")],
            },
        ),
        migrations.CreateModel(
            name="KeptCall",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("stage_id", models.BigIntegerField()),
                (
                    "by_stage_id",
                    models.BigIntegerField(null=True, help_text="The stage of the member that has added it."),
                ),
                ("call", models.JSONField(help_text="The row of the member when it was inserted.")),
            ],
            options={
                "db_table": "pgqueue_kept_calls",
                "verbose_name": "kept call of a member",
                "verbose_name_plural": "kept calls of members",
                "default_permissions": (),
                "indexes": [models.Index(fields=["stage_id", "id"], name="pgqueue_kept_calls_stage")],
            },
        ),
        RunFile("set_storage_options"),
        RunFile("pgqueue_enqueue", reverse_sql="DROP FUNCTION pgqueue_enqueue"),
        RunFile("pgqueue_turns", reverse_sql="DROP FUNCTION pgqueue_turns"),
        RunFile("pgqueue_workflow_of", reverse_sql="DROP FUNCTION pgqueue_workflow_of"),
        RunFile("pgqueue_move_members", reverse_sql="DROP FUNCTION pgqueue_move_members"),
        RunFile("pgqueue_settle_stage", reverse_sql="DROP FUNCTION pgqueue_settle_stage"),
        RunFile("pgqueue_advance", reverse_sql="DROP FUNCTION pgqueue_advance"),
        RunFile("pgqueue_end_workflow", reverse_sql="DROP FUNCTION pgqueue_end_workflow"),
        RunFile("pgqueue_stuck_stages", reverse_sql="DROP FUNCTION pgqueue_stuck_stages"),
    ]
