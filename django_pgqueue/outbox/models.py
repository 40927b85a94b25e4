from django.db import models
from django.db.models.functions import Now


class OutboxCall(models.Model):
    """A call that becomes a job once it is handed over. For reading."""

    id = models.BigAutoField(primary_key=True)
    enqueued_at = models.DateTimeField(db_default=Now())
    next_at = models.DateTimeField(db_default=Now(), help_text="Not handed over before.")
    number = models.SmallIntegerField(help_text="That of the queue's database among the shards.")
    call = models.JSONField(help_text="Arguments, keys and options.")
    error = models.TextField(db_default="", help_text="Why it was put off.")

    class Meta:
        db_table = "pgqueue_outbox"
        indexes = [models.Index(fields=["number", "id"], name="pgqueue_outbox_number")]

    def __str__(self) -> str:
        return str(self.pk)


class HandedOver(models.Model):
    """A note that a call was handed over, so that it becomes no second job; outlives the call's row. For reading."""

    id = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    job_id = models.BigIntegerField(help_text="Another than its own where a live job had its unique key.")

    class Meta:
        db_table = "pgqueue_handed_over"

    def __str__(self) -> str:
        return str(self.pk)
