from django.db import migrations, models

from django_pgqueue.migrations._operations import OnQueueDatabase


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0002_storage")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.AddField(
                    model_name="worker",
                    name="session_pid",
                    field=models.IntegerField(
                        db_default=0,
                        help_text="The server process of the session in which its command listens; 0: it polls.",
                    ),
                )
            ]
        ),
    ]
