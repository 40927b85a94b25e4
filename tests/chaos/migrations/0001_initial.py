from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Document",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.IntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Flow",
            fields=[
                ("key", models.BigIntegerField(primary_key=True, serialize=False)),
                ("workflow_id", models.BigIntegerField()),
                ("stages", models.JSONField()),
                ("to_seal", models.JSONField(default=list)),
            ],
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("flow", models.BigIntegerField()),
                ("stage", models.TextField()),
                ("number", models.IntegerField()),
                ("missing", models.IntegerField()),
            ],
            options={"indexes": [models.Index(fields=["flow", "stage"], name="chaos_step_stage")]},
        ),
        migrations.CreateModel(
            name="Witness",
            fields=[("batch", models.BigIntegerField(primary_key=True, serialize=False))],
        ),
    ]
