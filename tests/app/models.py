from django.db import models


class Mark(models.Model):
    """One line in the book of what really ran."""

    job_id = models.BigIntegerField()
    attempt = models.IntegerField(default=0)
    pid = models.IntegerField(default=0)
    label = models.CharField(max_length=200, default="")
    at = models.DateTimeField(auto_now_add=True)


class Place(models.Model):
    """The one place of a key, which a job takes while it runs."""

    key = models.CharField(max_length=200, primary_key=True)
    job_id = models.BigIntegerField()
