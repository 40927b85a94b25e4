from django.db import models


class Effect(models.Model):
    """What an atomic task did. Nothing in the schema keeps it from being there twice: the oracle counts."""

    key = models.BigIntegerField()


class Witness(models.Model):
    """Written in a producer's transaction: that it is there says that the transaction has committed."""

    batch = models.BigIntegerField(primary_key=True)


class Flow(models.Model):
    """A workflow, written in the transaction that has begun it."""

    key = models.BigIntegerField(primary_key=True)
    workflow_id = models.BigIntegerField()
    stages = models.JSONField()
    to_seal = models.JSONField(default=list)


class Step(models.Model):
    """What a member of a workflow did. Nothing in the schema keeps it from being there twice: the oracle counts."""

    flow = models.BigIntegerField()
    stage = models.TextField()
    number = models.IntegerField()
    missing = models.IntegerField()

    class Meta:
        indexes = [models.Index(fields=["flow", "stage"], name="chaos_step_stage")]


class Document(models.Model):
    """A row that changes, and that a job reads after each change."""

    version = models.IntegerField(default=0)
