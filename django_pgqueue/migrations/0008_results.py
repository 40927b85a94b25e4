from django.db import migrations, models

from django_pgqueue.migrations._operations import OnQueueDatabase


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0007_heads")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.AddField(
                    model_name="job",
                    name="awaited",
                    field=models.BooleanField(
                        db_default=False, help_text="Somebody waits for its end, which is announced."
                    ),
                ),
            ]
        ),
    ]
