"""Models of the courier."""

from django.db import models


class PickupPoint(models.Model):
    slug = models.SlugField(primary_key=True)
    is_open = models.BooleanField(default=True)

    def __str__(self):
        return self.slug.capitalize()


class Parcel(models.Model):
    order = models.BigIntegerField(unique=True, help_text="The shop's order number.")
    point = models.ForeignKey(PickupPoint, models.PROTECT)
    content = models.CharField(max_length=200)
    tries = models.PositiveIntegerField(default=0)
    accepted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-order"]

    def __str__(self):
        return f"Parcel of order {self.order}"

    @property
    def meets_a_busy_courier(self) -> bool:
        """Whether the first try fails: every second order, so that a run of the demo can be checked."""
        return self.order % 2 == 0
