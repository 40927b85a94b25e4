from django.db import models


class Effect(models.Model):
    """What an atomic task did. Nothing in the schema keeps it from being there twice: the oracle counts."""

    key = models.BigIntegerField()


class Witness(models.Model):
    """Written in a producer's transaction: that it is there says that the transaction has committed."""

    batch = models.BigIntegerField(primary_key=True)


class Document(models.Model):
    """A row that changes, and that a job reads after each change."""

    version = models.IntegerField(default=0)
