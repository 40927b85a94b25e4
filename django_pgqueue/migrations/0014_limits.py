import datetime

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.db.models.lookups import LessThanOrEqual
from psycopg import sql

from django_pgqueue.migrations._operations import OnQueueDatabase

# What Python can hold in every time zone.
RANGE = (datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC))


def is_at_most(column: str, longest: int) -> LessThanOrEqual:
    length = models.Func(models.F(column), function="char_length", output_field=models.IntegerField())
    return LessThanOrEqual(length, models.Value(longest))


CHECKS = (
    models.CheckConstraint(
        condition=models.Q(
            is_at_most("queue", 128),
            is_at_most("task", 500),
            is_at_most("backend", 500),
            is_at_most("unique_key", 500),
            is_at_most("concurrency_key", 500),
            is_at_most("fair_key", 500),
        ),
        name="pgqueue_jobs_lengths",
    ),
    models.CheckConstraint(
        condition=models.Q(
            ("enqueued_at__range", RANGE),
            ("first_started_at__range", RANGE),
            ("started_at__range", RANGE),
            ("lease_until__range", RANGE),
            ("expires_at__range", RANGE),
            ("cancel_requested_at__range", RANGE),
        ),
        name="pgqueue_jobs_instants",
    ),
)


def add_checks(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Add all by one statement: the table is locked, and read once for all of them."""
    job = apps.get_model("django_pgqueue", "Job")
    added = ", ".join(f"ADD {check.constraint_sql(job, schema_editor)}" for check in CHECKS)
    schema_editor.execute(sql.SQL("ALTER TABLE pgqueue_jobs {}").format(sql.SQL(added)).as_string(None), params=None)


def remove_checks(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    job = apps.get_model("django_pgqueue", "Job")
    for check in CHECKS:
        schema_editor.remove_constraint(job, check)


class Migration(migrations.Migration):
    dependencies = [
        ("django_pgqueue", "0013_turns"),
    ]

    operations = [
        OnQueueDatabase(
            database_operations=[migrations.RunPython(add_checks, remove_checks)],
            state_operations=[migrations.AddConstraint(model_name="job", constraint=check) for check in CHECKS],
        ),
    ]
