from django.db import migrations

from django_pgqueue.migrations._operations import OnQueueDatabase
from django_pgqueue.migrations._turns import TURNS, TURNS_UP_TO_NOW


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0012_unique_keys")]

    operations = [
        OnQueueDatabase.both(
            [
                migrations.RunSQL(
                    sql=TURNS_UP_TO_NOW, reverse_sql=TURNS.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
                ),
            ]
        ),
    ]
