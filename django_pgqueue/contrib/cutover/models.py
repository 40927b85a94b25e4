from django.db import models
from django.db.models.functions import Now

SUCCEEDED, FAILED = "succeeded", "failed"

OUTCOME = "Of the last run: succeeded, failed, or empty."
DETAIL = "Digest of the result, or class of the exception."


class CutoverCall(models.Model):
    """One call that both sides got: the side that runs it, where it has arrived, its results. For reading."""

    id = models.UUIDField(primary_key=True)
    enqueued_at = models.DateTimeField(db_default=Now())
    old_arrived_at = models.DateTimeField(null=True)
    new_arrived_at = models.DateTimeField(null=True)
    compares = models.BooleanField(help_text="Both sides run it, and their results are compared.")
    stage = models.TextField(help_text="Who leads.")
    task = models.TextField()
    old_outcome = models.TextField(db_default="", help_text=OUTCOME)
    old_detail = models.TextField(db_default="", help_text=DETAIL)
    new_outcome = models.TextField(db_default="", help_text=OUTCOME)
    new_detail = models.TextField(db_default="", help_text=DETAIL)

    class Meta:
        db_table = "pgqueue_cutover_calls"

    def __str__(self) -> str:
        return f"{self.task} {self.id}"
