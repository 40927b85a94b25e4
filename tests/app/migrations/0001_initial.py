from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Mark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("job_id", models.BigIntegerField()),
                ("attempt", models.IntegerField(default=0)),
                ("pid", models.IntegerField(default=0)),
                ("label", models.CharField(default="", max_length=200)),
                ("at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="Place",
            fields=[
                ("key", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField()),
            ],
        ),
    ]
