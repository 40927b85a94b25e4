"""The tables, as read-only models. Rows are changed by the statements in the ``sql`` folders and nowhere else.

Defaults and checks live in the database, so that a plain ``INSERT INTO pgqueue_jobs (task, args)`` from any language is
a valid enqueue. The order of columns is that of the migrations. What a claim overwrites is NOT NULL with a default of
the same width: the claimed row is no larger than the queued one and lands on the same page. Those columns are side by
side, and no column of fixed width comes after them: the WAL has of a claimed row what lies between the bytes at its
beginning and at its end that are as before, and with padding that moves the end would be other bytes.
"""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Q
from django.db.models.functions import Now
from django.db.models.lookups import Exact, LessThanOrEqual
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_pgqueue.states import (
    HIGHEST_PRIORITY,
    LATEST,
    LONGEST_KEY,
    LONGEST_NAME,
    LONGEST_PERIOD_SECONDS,
    LONGEST_QUEUE,
    LOWEST_PRIORITY,
    NEVER,
    CatchUp,
    DeathReason,
    OnDeath,
    OpensWhen,
    StageStatus,
    Status,
    UniqueUntil,
    WorkflowStatus,
)
from django_pgqueue.stored_values import only_texts, read

EMPTY_LIST = models.Value([], models.JSONField())
EMPTY_OBJECT = models.Value({}, models.JSONField())
NO_COUNTS = models.Value("{}", models.TextField())


class Negative(models.Func):
    """``(-column)``: makes "larger runs sooner" an ascending index, for one row comparison to be its range."""

    template = "(-%(expressions)s)"
    output_field = models.SmallIntegerField()


ORDER_OF_CLAIMS = Negative("priority"), "run_at", "id"


def is_array(column: str) -> Q:
    """Return the condition that a JSON column holds an array, to which the next entry can be added."""
    kind = models.Func(models.F(column), function="jsonb_typeof", output_field=models.TextField())
    return Q(Exact(kind, models.Value("array")))


def are_at_most(**longest: int) -> Q:
    """Return the condition that the texts of columns have no more characters, or are NULL."""
    return Q(*(LessThanOrEqual(length_of(column), models.Value(most)) for column, most in longest.items()))


def length_of(column: str) -> models.Func:
    """Return the number of characters of a text."""
    return models.Func(models.F(column), function="char_length", output_field=models.IntegerField())


def are_instants(*columns: str) -> Q:
    """Return the condition that Python can hold instants, or that they are NULL."""
    return Q(*((f"{column}__range", (NEVER, LATEST)) for column in columns))


class ErrorGroup(models.Func):
    """One number for what a job died of: its task, the reason, the class of its last error, the shape of the message.

    The shape is the first 200 characters without parts that differ from job to job: numbers, hexadecimal ids and text
    in quotation marks.
    """

    arity = 0
    template = (
        "hashtextextended(task || chr(10) || reason || chr(10) || COALESCE(errors -> -1 ->> 'error', '') || chr(10) || "
        "regexp_replace(left(COALESCE(errors -> -1 ->> 'message', ''), 200), "
        """'''[^'']*''|"[^"]*"|[0-9a-fA-F]{8,}|[0-9]+'"""
        ", '#', 'g'), 0)"
    )
    output_field = models.BigIntegerField()


class StoredJSON(models.JSONField):
    """Any JSON of a row, also from SQL: a value that Python cannot hold is read as a text in its place."""

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:  # noqa: ARG002 - Django's signature
        return read(value) if isinstance(value, str) else value

    def deconstruct(self) -> Any:
        """For migrations it is Django's: the column is the same."""
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs


class NumberArray(models.Field):  # type: ignore[type-arg]  # Django takes none when it runs
    """An array of numbers. Not Django's ArrayField, which wants django.contrib.postgres to be installed."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:  # noqa: ARG002 - the base class's signature
        return "integer[]"


class TextArray(models.Field):  # type: ignore[type-arg]  # the same
    """An array of texts. NULL and arrays in it, which only SQL inserts, are left out."""

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:  # noqa: ARG002 - Django's signature
        return only_texts(value)

    def db_type(self, connection: BaseDatabaseWrapper) -> str:  # noqa: ARG002 - the base class's signature
        return "text[]"


class JobRow(models.Model):
    """What all three tables of jobs have."""

    schedule_id = models.BigIntegerField(null=True)
    parent_id = models.BigIntegerField(null=True, help_text=_("The job that enqueued it."))
    stage_id = models.BigIntegerField(null=True, help_text=_("The stage of a workflow that it is a member of."))
    task = models.TextField(_("task"))
    tags = TextArray(null=True, help_text=_("By which people find it."))
    progress = StoredJSON(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.task} #{self.pk}"


class RunnableJobRow(JobRow):
    """Columns that are needed to run a job, and kept with a dead one for its retry."""

    first_started_at = models.DateTimeField(db_default=NEVER, help_text=_("First attempt; 1970 means not yet."))
    started_at = models.DateTimeField(_("started at"), db_default=NEVER, help_text=_("Latest attempt, when claimed."))
    worker_id = models.BigIntegerField(db_default=0, help_text=_("The worker process that runs it."))
    expires_at = models.DateTimeField(null=True, help_text=_("Not started after."))
    lease_seconds = models.IntegerField(db_default=30)
    timeout_seconds = models.IntegerField(db_default=0, help_text=_("0 means no limit."))
    priority = models.SmallIntegerField(_("priority"), db_default=0, help_text=_("-100 to 100; larger runs sooner."))
    attempts = models.SmallIntegerField(_("attempts"), db_default=0, help_text=_("Counted when claimed."))
    max_attempts = models.SmallIntegerField(db_default=10)
    lost = models.SmallIntegerField(db_default=0, help_text=_("How often a worker died with it."))
    snoozes = models.SmallIntegerField(db_default=0, help_text=_("How often it asked to run later."))
    concurrency_limit = models.SmallIntegerField(
        null=True, help_text=_("Maximum number of jobs of the key that run at once.")
    )
    unique_hold_seconds = models.IntegerField(
        db_default=0, help_text=_("Seconds for which the key is held after success.")
    )
    keep = models.BooleanField(db_default=True, help_text=_("Keep in succeeded jobs after success."))
    concurrency_strict = models.BooleanField(db_default=False, help_text=_("Keeps its slot while it backs off."))
    backend = models.TextField(db_default="", help_text=_("Alias in TASKS, for jobs of the Tasks framework."))
    args = StoredJSON(db_default=EMPTY_LIST)
    kwargs = StoredJSON(db_default=EMPTY_OBJECT)
    unique_key = models.TextField(null=True)
    unique_until = models.TextField(null=True)
    concurrency_key = models.TextField(null=True)
    fair_key = models.TextField(null=True)
    killed_by = models.TextField(null=True)
    metadata = StoredJSON(db_default=EMPTY_OBJECT)
    errors = StoredJSON(db_default=EMPTY_LIST, help_text=_("One entry for each failed attempt."))
    keep_seconds = models.IntegerField(null=True, help_text=_("For how long; empty: as long as any succeeded job."))

    class Meta:
        abstract = True


class Job(RunnableJobRow):
    """Live work: it will run, or is running. Small and hot; a job that is done leaves this table."""

    id = models.BigAutoField(primary_key=True)
    run_at = models.DateTimeField(_("run at"), db_default=Now(), help_text=_("Not started before."))
    enqueued_at = models.DateTimeField(_("enqueued at"), db_default=Now())
    lease_until = models.DateTimeField(db_default=NEVER, help_text=_("A silent worker keeps the job until then."))
    lease_token = models.BigIntegerField(db_default=0, help_text=_("Proves the lease; 0 means not running."))
    kill_requested_at = models.DateTimeField(null=True)
    concurrency_slot = models.SmallIntegerField(null=True, help_text=_("1 to the limit, once it is admitted."))
    status = models.TextField(_("status"), choices=Status.choices, db_default=Status.QUEUED)
    queue = models.TextField(_("queue"), db_default="default")
    has_waiters = models.BooleanField(
        db_default=False, help_text=_("True while a caller waits for its end, which is announced.")
    )

    class Meta:
        db_table = "pgqueue_jobs"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = [
            ("enqueue_job", "Can enqueue jobs"),
            ("run_now_job", "Can run jobs now"),
            ("kill_job", "Can kill jobs"),
            ("move_job", "Can move jobs to another queue"),
            ("set_priority_job", "Can change the priority of jobs"),
        ]
        indexes = [
            models.Index("queue", *ORDER_OF_CLAIMS, name="pgqueue_jobs_claim", condition=Q(status=Status.QUEUED)),
            models.Index(fields=["worker_id"], name="pgqueue_jobs_running", condition=Q(status=Status.RUNNING)),
            models.Index(
                fields=["run_at"], name="pgqueue_jobs_due", condition=Q(status__in=[Status.SCHEDULED, Status.RESERVED])
            ),
            models.Index(
                "concurrency_key", *ORDER_OF_CLAIMS, name="pgqueue_jobs_limited", condition=Q(status=Status.LIMITED)
            ),
            models.Index(
                "queue",
                "fair_key",
                Negative("priority"),
                "run_at",
                name="pgqueue_jobs_fair",
                condition=Q(fair_key__isnull=False, status__in=[Status.QUEUED, Status.LIMITED]),
            ),
            models.Index(fields=["id"], name="pgqueue_jobs_started", condition=Q(unique_until=UniqueUntil.STARTED)),
            models.Index(fields=["expires_at"], name="pgqueue_jobs_expiry", condition=Q(expires_at__isnull=False)),
            models.Index(fields=["stage_id", "id"], name="pgqueue_jobs_stage", condition=Q(stage_id__isnull=False)),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["unique_key"],
                name="pgqueue_jobs_unique",
                condition=Q(unique_until__in=[UniqueUntil.END, UniqueUntil.START]),
            ),
            models.UniqueConstraint(
                fields=["concurrency_key", "concurrency_slot"],
                name="pgqueue_jobs_slot",
                condition=Q(concurrency_slot__isnull=False),
            ),
            models.CheckConstraint(condition=Q(status__in=list(Status)), name="pgqueue_jobs_status"),
            models.CheckConstraint(
                condition=Q(status=Status.RUNNING) & ~Q(lease_token=0) | ~Q(status=Status.RUNNING) & Q(lease_token=0),
                name="pgqueue_jobs_running_has_lease",
            ),
            models.CheckConstraint(
                condition=Q(priority__range=(LOWEST_PRIORITY, HIGHEST_PRIORITY)), name="pgqueue_jobs_priority"
            ),
            models.CheckConstraint(
                condition=Q(attempts__gte=0, max_attempts__gte=1, lost__gte=0, snoozes__gte=0),
                name="pgqueue_jobs_attempts",
            ),
            models.CheckConstraint(
                condition=Q(lease_seconds__gte=1, timeout_seconds__gte=0), name="pgqueue_jobs_durations"
            ),
            models.CheckConstraint(condition=~Q(queue="") & ~Q(task=""), name="pgqueue_jobs_names"),
            models.CheckConstraint(condition=are_instants("run_at"), name="pgqueue_jobs_run_at"),
            models.CheckConstraint(condition=is_array("errors"), name="pgqueue_jobs_errors"),
            models.CheckConstraint(
                condition=are_at_most(queue=LONGEST_QUEUE, task=LONGEST_NAME, backend=LONGEST_NAME)
                & are_at_most(unique_key=LONGEST_KEY, concurrency_key=LONGEST_KEY, fair_key=LONGEST_KEY),
                name="pgqueue_jobs_lengths",
            ),
            models.CheckConstraint(
                condition=are_instants(
                    "enqueued_at", "first_started_at", "started_at", "lease_until", "expires_at", "kill_requested_at"
                ),
                name="pgqueue_jobs_instants",
            ),
            models.CheckConstraint(
                condition=Q(unique_key=None, unique_until=None)
                | Q(unique_key__isnull=False, unique_until__isnull=False, unique_until__in=list(UniqueUntil)),
                name="pgqueue_jobs_unique_until",
            ),
            models.CheckConstraint(
                condition=Q(concurrency_key=None, concurrency_slot=None)
                | Q(concurrency_key__isnull=False, concurrency_limit__isnull=False, concurrency_limit__gte=1)
                & ~Q(concurrency_key="")
                & (
                    Q(concurrency_slot__isnull=False, concurrency_slot__range=(1, models.F("concurrency_limit")))
                    | Q(status__in=[Status.SCHEDULED, Status.LIMITED, Status.RESERVED, Status.BLOCKED])
                ),
                name="pgqueue_jobs_admitted",
            ),
        ]


class DeadJob(RunnableJobRow):
    """Will not run again until it is retried. Same id and arguments, whole history, and the reason."""

    id = models.BigIntegerField(primary_key=True)
    died_at = models.DateTimeField(_("died at"), db_default=Now())
    run_at = models.DateTimeField()
    enqueued_at = models.DateTimeField(_("enqueued at"))
    reason = models.TextField(_("reason"), choices=DeathReason.choices)
    queue = models.TextField(_("queue"))
    cause = models.GeneratedField(
        expression=ErrorGroup(),
        output_field=models.BigIntegerField(),
        db_persist=True,
        help_text=_("The same for jobs that died of the same."),
    )

    class Meta:
        db_table = "pgqueue_dead_jobs"
        verbose_name = _("dead job")
        verbose_name_plural = _("dead jobs")
        permissions = [("retry_deadjob", "Can retry dead jobs")]
        indexes = [
            models.Index(fields=["-died_at", "-id"], name="pgqueue_dead_jobs_age"),
            models.Index(fields=["reason", "-died_at", "-id"], name="pgqueue_dead_jobs_reason"),
            models.Index(fields=["queue", "-died_at", "-id"], name="pgqueue_dead_jobs_queue"),
            models.Index(fields=["task", "-died_at", "-id"], name="pgqueue_dead_jobs_task"),
            models.Index(fields=["cause", "-died_at", "-id"], name="pgqueue_dead_jobs_cause"),
            models.Index(
                fields=["schedule_id", "-id"], name="pgqueue_dead_jobs_schedule", condition=Q(schedule_id__isnull=False)
            ),
            models.Index(
                fields=["stage_id", "id"], name="pgqueue_dead_jobs_stage", condition=Q(stage_id__isnull=False)
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(reason__in=list(DeathReason)), name="pgqueue_dead_jobs_known_reason"),
        ]


class SucceededJob(JobRow):
    """A job that succeeded, with its result. Append-only, one partition for each UTC day.

    The database's primary key is ``(id, succeeded_at)``, as a partitioned table needs; for Django it is ``id``.
    """

    id = models.BigIntegerField(primary_key=True)
    succeeded_at = models.DateTimeField(_("succeeded at"), db_default=Now())
    enqueued_at = models.DateTimeField(_("enqueued at"))
    run_at = models.DateTimeField()
    first_started_at = models.DateTimeField()
    started_at = models.DateTimeField()
    worker_id = models.BigIntegerField()
    run_seconds = models.FloatField(_("run time"), help_text=_("Of the attempt that succeeded, in seconds."))
    priority = models.SmallIntegerField()
    attempts = models.SmallIntegerField(_("attempts"))
    lost = models.SmallIntegerField()
    queue = models.TextField(_("queue"))
    backend = models.TextField()
    args = StoredJSON()
    kwargs = StoredJSON()
    result = StoredJSON(null=True)
    metadata = StoredJSON()
    errors = StoredJSON()
    prune_at = models.DateTimeField(null=True, help_text=_("Removed after that; empty: with its partition."))

    class Meta:
        db_table = "pgqueue_succeeded_jobs"
        verbose_name = _("succeeded job")
        verbose_name_plural = _("succeeded jobs")
        indexes = [
            models.Index(fields=["prune_at"], name="pgqueue_succeeded_prune", condition=Q(prune_at__isnull=False)),
            models.Index(
                fields=["schedule_id", "-id"],
                name="pgqueue_succeeded_schedule",
                condition=Q(schedule_id__isnull=False),
            ),
        ]


class Queue(models.Model):
    """A queue that has had jobs: whether it is paused, and its limits."""

    name = models.TextField(_("name"), primary_key=True)
    created_at = models.DateTimeField(db_default=Now())
    paused_at = models.DateTimeField(null=True)
    resume_at = models.DateTimeField(null=True)
    limited_at = models.DateTimeField(null=True)
    tokens_at = models.DateTimeField(db_default=Now())
    tokens = models.FloatField(db_default=0.0)
    max_running = models.IntegerField(null=True)
    rate_limit = models.IntegerField(null=True, help_text=_("Jobs started in each period."))
    rate_period_seconds = models.FloatField(null=True)
    rate_burst = models.IntegerField(null=True)
    paused_by = models.TextField(db_default="")
    pause_reason = models.TextField(db_default="")
    limited_by = models.TextField(db_default="")

    class Meta:
        db_table = "pgqueue_queues"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        permissions = [("pause_queue", "Can pause and resume queues"), ("limit_queue", "Can limit queues")]
        indexes = [
            models.Index(
                fields=["name"],
                name="pgqueue_queues_limited",
                condition=Q(paused_at__isnull=False) | Q(max_running__isnull=False) | Q(rate_limit__isnull=False),
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="pgqueue_queues_name"),
            models.CheckConstraint(
                condition=Q(paused_at__isnull=False) | Q(resume_at=None, paused_by="", pause_reason=""),
                name="pgqueue_queues_pause",
            ),
            models.CheckConstraint(
                condition=Q(limited_at__isnull=False) | Q(limited_by=""), name="pgqueue_queues_limited_by"
            ),
            models.CheckConstraint(condition=Q(max_running__gte=1), name="pgqueue_queues_max_running"),
            models.CheckConstraint(
                condition=Q(rate_limit=None, rate_period_seconds=None, rate_burst=None)
                | Q(
                    rate_limit__isnull=False,
                    rate_limit__gte=1,
                    rate_period_seconds__isnull=False,
                    rate_period_seconds__gt=0,
                    rate_period_seconds__lte=LONGEST_PERIOD_SECONDS,
                    rate_burst__isnull=False,
                    rate_burst__gte=1,
                ),
                name="pgqueue_queues_rate",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class QueueHead(models.Model):
    """The head of a queue with fair keys, at one priority; noted while old entries of indexes make it slow to find."""

    id = models.BigAutoField(primary_key=True)
    run_at = models.DateTimeField(help_text=_("Of the first job, at that time."))
    priority = models.SmallIntegerField()
    queue = models.TextField()

    class Meta:
        db_table = "pgqueue_queue_heads"
        verbose_name = _("head")
        verbose_name_plural = _("heads")
        constraints = [models.UniqueConstraint(fields=["queue", "priority"], name="pgqueue_queue_heads_place")]

    def __str__(self) -> str:
        return f"{self.queue} {self.priority}"


class OnceKey(models.Model):
    """A key that ``once`` has taken, in the transaction of the caller's own writes."""

    key = models.TextField(_("key"), primary_key=True)
    taken_at = models.DateTimeField(_("taken at"), db_default=Now())

    class Meta:
        db_table = "pgqueue_once_keys"
        verbose_name = _("once key")
        verbose_name_plural = _("once keys")
        default_permissions = ("view",)
        indexes = [models.Index(fields=["taken_at"], name="pgqueue_once_keys_age")]
        constraints = [
            models.CheckConstraint(condition=~Q(key="") & are_at_most(key=LONGEST_KEY), name="pgqueue_once_keys_length")
        ]

    def __str__(self) -> str:
        return self.key


class Schedule(models.Model):
    """A call that is enqueued at clock times (``cron``) or at intervals (``every_seconds``)."""

    id = models.BigAutoField(primary_key=True)
    next_at = models.DateTimeField(_("next at"))
    last_at = models.DateTimeField(_("last at"), null=True, help_text=_("The latest tick that became a job."))
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    edited_at = models.DateTimeField(
        _("edited at"), null=True, help_text=_("Set by an edit in the admin, which wins over code.")
    )
    declared_at = models.DateTimeField(
        _("declared at"), null=True, help_text=_("When a worker last found it in its code, to ten minutes.")
    )
    last_job_id = models.BigIntegerField(_("last job"), null=True)
    every_seconds = models.FloatField(_("every"), null=True, blank=True)
    jitter_seconds = models.FloatField(_("jitter"), default=0.0, db_default=0.0)
    catch_up_limit = models.IntegerField(_("catch up at most"), default=100, db_default=100)
    is_enabled = models.BooleanField(_("is enabled"), default=True, db_default=True)
    name = models.TextField(_("name"), unique=True)
    task = models.TextField(_("task"))
    cron = models.TextField(_("cron"), blank=True, default="", db_default="")
    timezone = models.TextField(_("time zone"), default="UTC", db_default="UTC")
    catch_up = models.TextField(
        _("catch up"),
        choices=CatchUp.choices,
        default=CatchUp.LAST,
        db_default=CatchUp.LAST,
    )
    source = models.TextField(
        _("source"), default="admin", db_default="admin", help_text=_("Declared in code or made in the admin.")
    )
    args = StoredJSON(_("args"), blank=True, default=list, db_default=EMPTY_LIST)
    kwargs = StoredJSON(_("kwargs"), blank=True, default=dict, db_default=EMPTY_OBJECT)
    options = StoredJSON(_("options"), blank=True, default=dict, db_default=EMPTY_OBJECT)
    paused_by = models.TextField(_("paused by"), blank=True, default="", db_default="")
    last_error = models.TextField(
        _("last error"), blank=True, default="", db_default="", help_text=_("Why its latest tick became no job.")
    )

    class Meta:
        db_table = "pgqueue_schedules"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering = ["name"]
        permissions = [
            ("pause_schedule", "Can pause and resume schedules"),
            ("run_schedule", "Can run schedules now"),
        ]
        indexes = [
            models.Index(fields=["next_at"], name="pgqueue_schedules_due", condition=Q(is_enabled=True)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(cron="", every_seconds__isnull=False, every_seconds__gt=0)
                | ~Q(cron="") & Q(every_seconds=None),
                name="pgqueue_schedules_cron_or_every",
            ),
            models.CheckConstraint(
                condition=Q(catch_up__in=list(CatchUp), catch_up_limit__gte=1, jitter_seconds__gte=0),
                name="pgqueue_schedules_catch_up",
            ),
            models.CheckConstraint(condition=~Q(name="") & ~Q(task=""), name="pgqueue_schedules_names"),
        ]

    def __str__(self) -> str:
        return self.name


class Workflow(models.Model):
    """Jobs that belong together: stages of members, each of which opens when those before it are over.

    Whether a stage is over is asked of the live jobs: there is no count that could be wrong.
    """

    id = models.BigAutoField(primary_key=True)
    begun_at = models.DateTimeField(_("begun at"), db_default=Now())
    ended_at = models.DateTimeField(_("ended at"), null=True)
    deadline_at = models.DateTimeField(_("deadline"), null=True, help_text=_("It fails if it is still open then."))
    parent_stage_id = models.BigIntegerField(
        null=True, help_text=_("The stage of another workflow that is not over before this one.")
    )
    status = models.TextField(_("status"), choices=WorkflowStatus.choices, db_default=WorkflowStatus.OPEN)
    on_death = models.TextField(_("on death"), choices=OnDeath.choices, db_default=OnDeath.WAIT)
    name = models.TextField(_("name"))
    unique_key = models.TextField(_("unique key"), null=True, help_text=_("Of one open workflow at a time."))
    ended_by = models.TextField(
        _("ended by"), db_default="", help_text=_("User who has killed it; empty if its deadline has ended it.")
    )
    context = StoredJSON(_("context"), db_default=EMPTY_OBJECT, help_text=_("For all members to read."))
    keeps_calls = models.BooleanField(db_default=False, help_text=_("Stages can be run again."))

    class Meta:
        db_table = "pgqueue_workflows"
        verbose_name = _("workflow")
        verbose_name_plural = _("workflows")
        default_permissions = ("view",)
        permissions = [
            ("kill_workflow", "Can kill workflows"),
            ("retry_workflow", "Can retry dead members of workflows"),
            ("skip_stage", "Can skip stages of workflows"),
            ("seal_stage", "Can seal stages of workflows"),
            ("rerun_stage", "Can run stages of workflows again"),
        ]
        indexes = [
            models.Index(
                fields=["deadline_at"],
                name="pgqueue_workflows_deadline",
                condition=Q(status=WorkflowStatus.OPEN, deadline_at__isnull=False),
            ),
            models.Index(
                fields=["parent_stage_id"],
                name="pgqueue_workflows_parent",
                condition=Q(parent_stage_id__isnull=False),
            ),
            models.Index(fields=["ended_at"], name="pgqueue_workflows_ended", condition=Q(ended_at__isnull=False)),
            models.Index(fields=["name", "-id"], name="pgqueue_workflows_name"),
            models.Index(fields=["status", "-id"], name="pgqueue_workflows_status"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["unique_key"],
                name="pgqueue_workflows_unique",
                condition=Q(status=WorkflowStatus.OPEN, unique_key__isnull=False),  # of few: it serves no other look
            ),
            models.CheckConstraint(condition=Q(status__in=list(WorkflowStatus)), name="pgqueue_workflows_known_status"),
            models.CheckConstraint(condition=Q(on_death__in=list(OnDeath)), name="pgqueue_workflows_on_death"),
            models.CheckConstraint(
                condition=Q(status=WorkflowStatus.OPEN, ended_at=None)
                | ~Q(status=WorkflowStatus.OPEN) & Q(ended_at__isnull=False),
                name="pgqueue_workflows_end",
            ),
            models.CheckConstraint(
                condition=~Q(name="") & are_at_most(name=LONGEST_NAME, unique_key=LONGEST_KEY),
                name="pgqueue_workflows_lengths",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"


class Stage(models.Model):
    """Members of a workflow that run side by side.

    The id is that of the workflow in the upper bits, then the number of the stage from 0, then whether it collects the
    results of its members: members know all three by the one column ``stage_id``.
    """

    id = models.BigIntegerField(primary_key=True)
    opened_at = models.DateTimeField(_("opened at"), null=True)
    ended_at = models.DateTimeField(_("ended at"), null=True)
    moves_after = models.BigIntegerField(
        null=True,
        help_text=_("Members above this id are still to be opened, or removed; -1: left for later; empty: none."),
    )
    members = models.IntegerField(_("members"), db_default=0, help_text=_("With which the workflow was begun."))
    died = models.IntegerField(_("died"), db_default=0, help_text=_("Members that were dead when it ended."))
    is_sealed = models.BooleanField(_("sealed"), db_default=True, help_text=_("Closed to new members from outside."))
    status = models.TextField(_("status"), choices=StageStatus.choices, db_default=StageStatus.BLOCKED)
    opens_when = models.TextField(_("opens when"), choices=OpensWhen.choices, db_default=OpensWhen.SUCCEEDED)
    name = models.TextField(_("name"))
    killed_by = models.TextField(_("killed by"), null=True, help_text=_("User who has killed it; null: it was not."))
    rerun_by = models.TextField(null=True, help_text=_("User who has run it again last; null: it was not."))
    previous = StoredJSON(null=True, help_text=_("Arguments that take the result of the member before."))

    class Meta:
        db_table = "pgqueue_stages"
        verbose_name = _("stage")
        verbose_name_plural = _("stages")
        default_permissions = ()
        indexes = [
            models.Index(fields=["id"], name="pgqueue_stages_open", condition=Q(status=StageStatus.OPEN)),
            models.Index(
                fields=["id"],
                name="pgqueue_stages_unended",
                condition=Q(status__in=[StageStatus.BLOCKED, StageStatus.OPEN]),
            ),
            models.Index(fields=["id"], name="pgqueue_stages_moving", condition=Q(moves_after__isnull=False)),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(status__in=list(StageStatus)), name="pgqueue_stages_known_status"),
            models.CheckConstraint(condition=Q(opens_when__in=list(OpensWhen)), name="pgqueue_stages_opens_when"),
            models.CheckConstraint(condition=~Q(name="") & are_at_most(name=LONGEST_NAME), name="pgqueue_stages_name"),
        ]

    def __str__(self) -> str:
        return f"{self.name} of workflow {self.workflow_id}"

    @property
    def workflow_id(self) -> int:
        return int(self.pk) >> 16

    @property
    def number(self) -> int:
        """Its place in the workflow, from 0."""
        return (int(self.pk) & 0xFFFF) >> 1

    @property
    def collects(self) -> bool:
        """Whether the results of its members are kept for those behind it."""
        return bool(int(self.pk) & 1)


class StageEdge(models.Model):
    """A stage that waits for another one, and the outcome of that one."""

    id = models.BigAutoField(primary_key=True)
    from_id = models.BigIntegerField()
    to_id = models.BigIntegerField()
    outcome = models.TextField(
        null=True, help_text=_("Empty until the stage before is over: succeeded, died, skipped.")
    )

    class Meta:
        db_table = "pgqueue_stage_edges"
        verbose_name = _("edge between stages")
        verbose_name_plural = _("edges between stages")
        default_permissions = ()
        indexes = [
            models.Index(fields=["to_id"], name="pgqueue_stage_edges_pending", condition=Q(outcome=None)),
            models.Index(
                fields=["to_id"], name="pgqueue_stage_edges_bad", condition=Q(outcome__in=["died", "skipped"])
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["from_id", "to_id"], name="pgqueue_stage_edges_once"),
        ]

    def __str__(self) -> str:
        return f"{self.from_id} -> {self.to_id}"


class StageResult(models.Model):
    """The result of a member of a stage that collects them; it goes with the workflow."""

    job_id = models.BigIntegerField(primary_key=True)
    stage_id = models.BigIntegerField()
    result = StoredJSON(null=True)

    class Meta:
        db_table = "pgqueue_stage_results"
        verbose_name = _("result of a member")
        verbose_name_plural = _("results of members")
        default_permissions = ()
        indexes = [models.Index(fields=["stage_id", "job_id"], name="pgqueue_stage_results_stage")]

    def __str__(self) -> str:
        return f"of job {self.job_id}"


class StageAddition(models.Model):
    """A number of members that were added to a stage. A row for each time: no two callers wait for one count."""

    id = models.BigAutoField(primary_key=True)
    stage_id = models.BigIntegerField()
    members = models.IntegerField()

    class Meta:
        db_table = "pgqueue_stage_additions"
        verbose_name = _("addition to a stage")
        verbose_name_plural = _("additions to stages")
        default_permissions = ()
        indexes = [models.Index(fields=["stage_id"], name="pgqueue_stage_additions_stage")]

    def __str__(self) -> str:
        return f"{self.members} to {self.stage_id}"


class KeptCall(models.Model):
    """The call of a member, of which a new one can be made; it goes with the workflow."""

    id = models.BigAutoField(primary_key=True)
    stage_id = models.BigIntegerField()
    by_stage_id = models.BigIntegerField(null=True, help_text=_("The stage of the member that has added it."))
    call = StoredJSON(help_text=_("The row of the member when it was inserted."))

    class Meta:
        db_table = "pgqueue_kept_calls"
        verbose_name = _("kept call of a member")
        verbose_name_plural = _("kept calls of members")
        default_permissions = ()
        indexes = [models.Index(fields=["stage_id", "id"], name="pgqueue_kept_calls_stage")]

    def __str__(self) -> str:
        return f"of stage {self.stage_id}"


class Worker(models.Model):
    """One live worker process. Its supervisor renews the leases of all processes of one command at once."""

    id = models.BigAutoField(primary_key=True)
    supervisor_id = models.BigIntegerField(help_text=_("Shared by the processes of one pgqueue_worker command."))
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    heartbeat_at = models.DateTimeField(_("last heartbeat"), db_default=Now())
    lease_until = models.DateTimeField()
    pid = models.IntegerField()
    session_pid = models.IntegerField(
        db_default=0, help_text=_("The server process of the session in which its command listens; 0: it polls.")
    )
    concurrency = models.IntegerField()
    host = models.TextField(_("host"))
    name = models.TextField(_("name"), db_default="")
    version = models.TextField()
    queues = StoredJSON(db_default=EMPTY_LIST, help_text=_("Empty means all."))
    metadata = StoredJSON(db_default=EMPTY_OBJECT)
    memory_bytes = models.BigIntegerField(
        _("memory"), db_default=0, help_text=_("Resident, at the last heartbeat; 0: not known.")
    )
    stop_requested_at = models.DateTimeField(_("asked to stop at"), null=True)
    stop_requested_by = models.TextField(db_default="")
    quiet_since = models.DateTimeField(_("quiet since"), null=True)
    quiet_by = models.TextField(db_default="")

    class Meta:
        db_table = "pgqueue_workers"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        permissions = [("stop_worker", "Can ask workers to stop"), ("quiet_worker", "Can make workers quiet")]

    def __str__(self) -> str:
        return f"{self.host} {self.pid}"


class Stat(models.Model):
    """Counts and time sums of one task on one queue in one minute, also of jobs that are not kept.

    Workers add to it every few seconds. One that is killed loses counts that it has not added yet: these are figures
    for charts, not accounts.
    """

    id = models.BigAutoField(primary_key=True)
    minute = models.DateTimeField(help_text=_("In which the attempts ended."))
    succeeded = models.BigIntegerField(db_default=0)
    failed = models.BigIntegerField(db_default=0, help_text=_("Attempts that failed, for good or not."))
    retried = models.BigIntegerField(db_default=0, help_text=_("Of those that failed: the job runs again."))
    died = models.BigIntegerField(db_default=0, help_text=_("Jobs that went to the dead jobs."))
    lost = models.BigIntegerField(db_default=0, help_text=_("Attempts whose worker died."))
    stale = models.BigIntegerField(db_default=0, help_text=_("Results that were dropped: the lease was lost."))
    wait_seconds = models.FloatField(db_default=0.0, help_text=_("From run_at to the claim, of all these attempts."))
    run_seconds = models.FloatField(db_default=0.0, help_text=_("Of all these attempts."))
    wait_buckets = NumberArray(
        db_default=NO_COUNTS, help_text=_("How many waited up to 1 ms, up to 2.5 ms, and so on.")
    )
    run_buckets = NumberArray(db_default=NO_COUNTS, help_text=_("The same of how long they ran."))
    queue = models.TextField()
    task = models.TextField()

    class Meta:
        db_table = "pgqueue_stats"
        verbose_name = _("statistic")
        verbose_name_plural = _("statistics")
        constraints = [models.UniqueConstraint(fields=["minute", "queue", "task"], name="pgqueue_stats_minute")]

    def __str__(self) -> str:
        return f"{self.task} {self.minute:%Y-%m-%d %H:%M}"


class Overview(Stat):
    """The first page of staff. A model of its own for its place in the admin and its permission; it has no rows."""

    class Meta:
        proxy = True
        verbose_name = _("overview")
        verbose_name_plural = _("overview")
        default_permissions = ("view",)


class BulkAction(models.Model):
    """One thing that is done to many jobs in the background, by whichever worker is free, slice by slice.

    Each slice, its counts and where the next one begins are one transaction: a bulk action whose worker dies goes on
    with the next slice.
    """

    id = models.BigAutoField(primary_key=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    started_at = models.DateTimeField(_("started at"), null=True)
    next_at = models.DateTimeField(db_default=Now(), help_text=_("The next slice is not before."))
    ended_at = models.DateTimeField(_("ended at"), null=True)
    stopped_at = models.DateTimeField(_("stopped at"), null=True)
    after_id = models.BigIntegerField(db_default=0, help_text=_("The next slice begins above this id."))
    until_id = models.BigIntegerField(null=True, help_text=_("It ends with this id: the newest when it began."))
    looked = models.BigIntegerField(_("looked at"), db_default=0)
    done = models.BigIntegerField(_("done"), db_default=0)
    expected = models.BigIntegerField(null=True, help_text=_("How many matched when it was asked for."))
    rate = models.FloatField(_("rate"), null=True, help_text=_("Jobs a second; empty: as fast as it goes."))
    action = models.TextField(_("action"))
    source = models.TextField(help_text=_("Which table: live, dead or succeeded."))
    by = models.TextField(pgettext_lazy("who asked for it", "by"))
    stopped_by = models.TextField(_("stopped by"), db_default="")
    last_error = models.TextField(_("last error"), db_default="")
    filter = StoredJSON(_("filter"), db_default=EMPTY_OBJECT)
    params = StoredJSON(db_default=EMPTY_OBJECT, help_text=_("What else the action needs: a queue, a priority."))
    outcome = StoredJSON(db_default=EMPTY_OBJECT, help_text=_("How many, by their change."))
    skipped = StoredJSON(_("left alone"), db_default=EMPTY_OBJECT, help_text=_("How many, by the reason."))

    class Meta:
        db_table = "pgqueue_bulk_actions"
        verbose_name = _("bulk action")
        verbose_name_plural = _("bulk actions")
        default_permissions = ("view",)
        permissions = [("stop_bulkaction", "Can stop bulk actions")]
        indexes = [
            models.Index(fields=["next_at"], name="pgqueue_bulk_actions_open", condition=Q(ended_at=None)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(rate=None) | Q(rate__isnull=False, rate__gt=0), name="pgqueue_bulk_actions_rate"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} #{self.pk}"
