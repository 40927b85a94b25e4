from django.db import migrations, models

import django_pgqueue.models
import django_pgqueue.states
from django_pgqueue.migrations._enqueue import WITH_KEYS, WITHOUT_KEYS
from django_pgqueue.migrations._operations import OnQueueDatabase


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0003_worker_session")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.RemoveConstraint(
                    model_name="deadjob",
                    name="pgqueue_dead_jobs_known_reason",
                ),
                migrations.RemoveConstraint(
                    model_name="job",
                    name="pgqueue_jobs_unique",
                ),
                migrations.RemoveIndex(
                    model_name="job",
                    name="pgqueue_jobs_concurrency",
                ),
                migrations.AddField(
                    model_name="deadjob",
                    name="concurrency_strict",
                    field=models.BooleanField(db_default=False),
                ),
                migrations.AddField(
                    model_name="deadjob",
                    name="unique_for_seconds",
                    field=models.IntegerField(db_default=0),
                ),
                migrations.AddField(
                    model_name="job",
                    name="concurrency_strict",
                    field=models.BooleanField(db_default=False, help_text="Keeps its slot while it backs off."),
                ),
                migrations.AddField(
                    model_name="job",
                    name="unique_for_seconds",
                    field=models.IntegerField(db_default=0, help_text="The key is held for so long after success."),
                ),
                migrations.AlterField(
                    model_name="deadjob",
                    name="reason",
                    field=models.TextField(
                        choices=[
                            ("exhausted", "exhausted"),
                            ("discarded", "discarded"),
                            ("lost", "lost"),
                            ("killed", "killed"),
                            ("expired", "expired"),
                            ("unknown_task", "unknown task"),
                            ("superseded", "superseded"),
                        ],
                        verbose_name="reason",
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="concurrency_limit",
                    field=models.SmallIntegerField(help_text="So many jobs of the key may run at once.", null=True),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="concurrency_slot",
                    field=models.SmallIntegerField(help_text="1 to the limit, once it is admitted.", null=True),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="expires_at",
                    field=models.DateTimeField(help_text="Not started after.", null=True),
                ),
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        models.F("concurrency_key"),
                        django_pgqueue.models.Negative("priority"),
                        models.F("run_at"),
                        models.F("id"),
                        condition=models.Q(("status", django_pgqueue.states.Status["WAITING"])),
                        name="pgqueue_jobs_waiting",
                    ),
                ),
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        models.F("queue"),
                        models.F("fair_key"),
                        django_pgqueue.models.Negative("priority"),
                        models.F("run_at"),
                        condition=models.Q(
                            ("fair_key__isnull", False),
                            (
                                "status__in",
                                [
                                    django_pgqueue.states.Status["QUEUED"],
                                    django_pgqueue.states.Status["WAITING"],
                                ],
                            ),
                        ),
                        name="pgqueue_jobs_fair",
                    ),
                ),
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        condition=models.Q(("unique_scope", django_pgqueue.states.Scope["STARTED"])),
                        fields=["id"],
                        name="pgqueue_jobs_started",
                    ),
                ),
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        condition=models.Q(("expires_at__isnull", False)),
                        fields=["expires_at"],
                        name="pgqueue_jobs_expiry",
                    ),
                ),
                migrations.AddConstraint(
                    model_name="deadjob",
                    constraint=models.CheckConstraint(
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
                                    django_pgqueue.states.Reason["SUPERSEDED"],
                                ],
                            )
                        ),
                        name="pgqueue_dead_jobs_known_reason",
                    ),
                ),
                migrations.AddConstraint(
                    model_name="job",
                    constraint=models.UniqueConstraint(
                        condition=models.Q(
                            (
                                "unique_scope__in",
                                [django_pgqueue.states.Scope["LIVE"], django_pgqueue.states.Scope["START"]],
                            )
                        ),
                        fields=("unique_key",),
                        name="pgqueue_jobs_unique",
                    ),
                ),
                migrations.AddConstraint(
                    model_name="job",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("unique_key", None), ("unique_scope", None)),
                            models.Q(
                                ("unique_key__isnull", False),
                                (
                                    "unique_scope__in",
                                    [
                                        django_pgqueue.states.Scope["LIVE"],
                                        django_pgqueue.states.Scope["START"],
                                        django_pgqueue.states.Scope["STARTED"],
                                    ],
                                ),
                                ("unique_scope__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="pgqueue_jobs_unique_scope",
                    ),
                ),
                migrations.AddConstraint(
                    model_name="job",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("concurrency_key", None), ("concurrency_slot", None)),
                            models.Q(
                                ("concurrency_key__isnull", False),
                                ("concurrency_limit__gte", 1),
                                ("concurrency_limit__isnull", False),
                                models.Q(("concurrency_key", ""), _negated=True),
                                models.Q(
                                    models.Q(
                                        ("concurrency_slot__isnull", False),
                                        ("concurrency_slot__range", (1, models.F("concurrency_limit"))),
                                    ),
                                    (
                                        "status__in",
                                        [
                                            django_pgqueue.states.Status["SCHEDULED"],
                                            django_pgqueue.states.Status["WAITING"],
                                            django_pgqueue.states.Status["HELD"],
                                        ],
                                    ),
                                    _connector="OR",
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="pgqueue_jobs_admitted",
                    ),
                ),
                migrations.RunSQL(
                    sql="DROP FUNCTION pgqueue_enqueue;" + WITH_KEYS,
                    reverse_sql="DROP FUNCTION pgqueue_enqueue;" + WITHOUT_KEYS,
                ),
            ]
        ),
    ]
