import uuid
from decimal import Decimal

from django.core.validators import FileExtensionValidator, MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now
from django.urls import reverse


class Product(models.Model):
    name = models.CharField(max_length=80, unique=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    account = models.CharField(max_length=8, blank=True, help_text="Account on which its sales are booked.")
    sold = models.PositiveIntegerField(default=0, editable=False)

    def __str__(self):
        return self.name


class Order(models.Model):
    class PickupPoint(models.TextChoices):
        HARBOUR = "harbour", "Harbour"
        HILL = "hill", "Hill"

    reference = models.UUIDField(default=uuid.uuid4, unique=True, editable=False, help_text="Its secret address.")
    product = models.ForeignKey(Product, models.PROTECT)
    quantity = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1), MaxValueValidator(20)])
    price = models.DecimalField(max_digits=8, decimal_places=2, editable=False, help_text="Of one, when ordered.")
    name = models.CharField("your name", max_length=80)
    email = models.EmailField("e-mail")
    pickup_point = models.CharField("pick-up point", max_length=20, choices=PickupPoint, default=PickupPoint.HARBOUR)
    placed_at = models.DateTimeField(db_default=Now(), editable=False)
    receipt_sent_at = models.DateTimeField(null=True, editable=False)
    courier_told_at = models.DateTimeField(null=True, editable=False)
    courier_job = models.BigIntegerField(null=True, editable=False, help_text="Id of the job that tells the courier.")

    class Meta:
        ordering = ["-pk"]

    def __str__(self):
        return f"Order {self.pk}"

    def get_absolute_url(self):
        return reverse("order", args=[self.reference])

    @property
    def total(self) -> Decimal:
        return self.price * self.quantity


class Photo(models.Model):
    FORMATS = ("jpg", "jpeg", "png", "webp", "gif")

    product = models.ForeignKey(Product, models.CASCADE, related_name="photos")
    image = models.FileField(upload_to="photos", validators=[FileExtensionValidator(FORMATS)])
    thumbnail = models.FileField(upload_to="thumbnails", blank=True, editable=False)
    uploaded_at = models.DateTimeField(db_default=Now(), editable=False)
    job = models.BigIntegerField(null=True, editable=False, help_text="Id of the job that makes the thumbnail.")

    class Meta:
        ordering = ["-pk"]

    def __str__(self):
        return self.image.name


class Export(models.Model):
    """Orders for the bookkeeper: a page for each product, in one ZIP."""

    email = models.EmailField("the bookkeeper's e-mail", default="books@smallhours.example")
    asked_at = models.DateTimeField(db_default=Now(), editable=False)
    mailed_at = models.DateTimeField(null=True, editable=False)
    workflow = models.BigIntegerField(null=True, editable=False, help_text="Id of the workflow that makes it.")

    class Meta:
        ordering = ["-pk"]

    def __str__(self):
        return f"Export {self.pk}"
