from django.db import models


class Visit(models.Model):
    """What handlers insert when they are measured with the ORM."""

    path = models.TextField()
    seen_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.path


class Start(models.Model):
    """What handlers of jobs with a concurrency key write down, in the order in which they begin."""

    key = models.TextField()
    job_id = models.BigIntegerField()
    is_breach = models.BooleanField()

    def __str__(self) -> str:
        return f"{self.job_id} of {self.key}"


class Place(models.Model):
    """The one place of a key, which a handler takes as long as it runs."""

    key = models.TextField(primary_key=True)
    job_id = models.BigIntegerField()

    def __str__(self) -> str:
        return self.key
