from django.db import migrations, models

from django_pgqueue.migrations._operations import OnQueueDatabase


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0008_results")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.AddField(
                    model_name="job",
                    name="keep_seconds",
                    field=models.IntegerField(help_text="For how long; empty: as long as any finished job.", null=True),
                ),
                migrations.AddField(model_name="deadjob", name="keep_seconds", field=models.IntegerField(null=True)),
                migrations.AddField(
                    model_name="finishedjob",
                    name="prune_at",
                    field=models.DateTimeField(help_text="Removed after that; empty: with its partition.", null=True),
                ),
                migrations.AddIndex(
                    model_name="finishedjob",
                    index=models.Index(
                        condition=models.Q(("prune_at__isnull", False)),
                        fields=["prune_at"],
                        name="pgqueue_finished_jobs_prune",
                    ),
                ),
            ]
        ),
    ]
