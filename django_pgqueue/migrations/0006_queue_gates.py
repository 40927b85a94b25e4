from django.db import migrations, models

from django_pgqueue.migrations._operations import OnQueueDatabase


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0005_schedules")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.AddIndex(
                    model_name="queue",
                    index=models.Index(
                        fields=["name"],
                        name="pgqueue_queues_gated",
                        condition=models.Q(paused_at__isnull=False)
                        | models.Q(max_running__isnull=False)
                        | models.Q(rate_limit__isnull=False),
                    ),
                ),
                migrations.AddConstraint(
                    model_name="queue",
                    constraint=models.CheckConstraint(
                        condition=models.Q(paused_at__isnull=False)
                        | models.Q(resume_at=None, paused_by="", pause_reason=""),
                        name="pgqueue_queues_pause",
                    ),
                ),
                migrations.AddConstraint(
                    model_name="queue",
                    constraint=models.CheckConstraint(
                        condition=models.Q(max_running__gte=1), name="pgqueue_queues_max_running"
                    ),
                ),
                migrations.AddConstraint(
                    model_name="queue",
                    constraint=models.CheckConstraint(
                        condition=models.Q(rate_limit=None, rate_period_seconds=None, rate_burst=None)
                        | models.Q(
                            rate_limit__isnull=False,
                            rate_limit__gte=1,
                            rate_period_seconds__isnull=False,
                            rate_period_seconds__gt=0,
                            rate_period_seconds__lte=31_536_000,
                            rate_burst__isnull=False,
                            rate_burst__gte=1,
                        ),
                        name="pgqueue_queues_rate",
                    ),
                ),
            ]
        ),
    ]
