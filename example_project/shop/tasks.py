"""The shop's background work, found by autodiscovery because the file is called ``tasks.py``.

A job runs at least once: a worker that dies between the effect and the end of its job leaves it to another. So each
task here can run twice without harm, and says how.
"""

import csv
import io
import json
import zipfile
from pathlib import PurePosixPath
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.dispatch import receiver
from django.template.loader import render_to_string
from PIL import Image, ImageOps

from django_pgqueue import Discard, Limit, Unique, current_workflow, periodic, task, workflow
from django_pgqueue.signals import JobEvent, job_died
from shop.models import Export, Order, Photo, Product

THUMBNAIL_PIXELS = 480

http = build_opener(ProxyHandler({}))  # the courier is on this computer, whatever proxy the environment names


class CourierRefusedError(Exception):
    """The courier answered, but not with a yes."""


@task(queue="mails", max_attempts=8)
def send_receipt(order_id: int) -> None:
    """Mail the receipt.

    Twice without harm: an order that has its receipt is left alone, and should a crash come just between the two
    last statements, mail programs recognise the repeated Message-ID.
    """
    order = Order.objects.select_related("product").get(pk=order_id)
    if order.receipt_sent_at:
        return
    EmailMessage(
        subject=f"Your receipt for order {order.pk}",
        body=render_to_string("shop/receipt.txt", {"order": order}),
        to=[order.email],
        headers={"Message-ID": f"<receipt-{order.reference}@smallhours.example>"},
    ).send()
    Order.objects.filter(pk=order_id).update(receipt_sent_at=Now())


@task(queue="bookkeeping", atomic=True)
def count_sale(order_id: int) -> None:
    """Add the order to what its product has sold, without making customers queue for the product's row.

    Runs once in effect: with ``atomic=True`` the sum and the end of the job are one transaction.
    """
    order = Order.objects.get(pk=order_id)
    Product.objects.filter(pk=order.product_id).update(sold=F("sold") + order.quantity)


@task(queue="webhooks", max_attempts=3, backoff=1, limit=Limit(running=2))
def tell_courier(order_id: int) -> None:
    """Ask the courier to fetch the parcel. Two more attempts, a second apart; then staff has to look at it.

    The courier takes two calls at a time, however many workers there are.

    Twice without harm: the courier knows the parcel by its order number.
    """
    order = Order.objects.select_related("product").get(pk=order_id)
    parcel = {"order": order.pk, "pickup_point": order.pickup_point, "content": f"{order.quantity} x {order.product}"}
    request = Request(settings.COURIER_URL, json.dumps(parcel).encode(), {"Content-Type": "application/json"})
    try:
        http.open(request, timeout=30).close()
    except HTTPError as error:
        with error:
            raise CourierRefusedError(f"{error.code}: {error.read(200).decode(errors='replace')}") from None
    Order.objects.filter(pk=order_id).update(courier_told_at=Now())


@receiver(job_died, sender=tell_courier)
def tell_packers(event: JobEvent, **_: Any) -> None:
    """Mail to those who pack that the courier is not asked any more: the parcel has to be carried there."""
    [order_id] = event.args
    subject = f"The courier does not come for order {order_id}"
    EmailMessage(subject=subject, body=f"{event.reason}\n", to=["packing@smallhours.example"]).send()


@task(queue="photos", max_attempts=3, unique=Unique("photo_id", until="start"))
def make_thumbnail(photo_id: int) -> None:
    """Write a small copy of a photo.

    Asked for again before it has started, there is one job; asked for while it runs, another one sees what is new.

    Twice without harm: the file has the same name both times.
    """
    photo = Photo.objects.get(pk=photo_id)
    with photo.image.open() as file:
        content = file.read()  # a disk that fails raises here, and is worth another attempt
    try:
        thumbnail = shrink(content)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # all that Pillow raises
        raise Discard(f"'{photo.image.name}' cannot be read as an image: {error}") from error
    name = f"{photo.pk}.webp"
    default_storage.delete(f"thumbnails/{name}")
    photo.thumbnail.save(name, ContentFile(thumbnail), save=False)
    photo.save(update_fields=["thumbnail"])


@periodic("0 18 * * *", timezone="UTC")
@task(queue="mails")
def mail_takings() -> None:
    """Mail to the shop what was sold so far, every evening.

    Twice without harm: it is a second mail with the same figures.
    """
    sold = "\n".join(f"{product.sold:6} {product}" for product in Product.objects.order_by("pk"))
    EmailMessage(subject="Sold so far", body=f"{sold}\n", to=["till@smallhours.example"]).send()


def shrink(content: bytes) -> bytes:
    """Return the image, upright, at most ``THUMBNAIL_PIXELS`` wide and high, as WebP."""
    with Image.open(io.BytesIO(content)) as image:
        small = ImageOps.exif_transpose(image).convert("RGBA")
    small.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    out = io.BytesIO()
    small.save(out, "WEBP", quality=82)
    return out.getvalue()


def begin_export(export: Export) -> None:
    """Export all orders for the bookkeeper: collect, write the pages side by side, join them, mail.

    The export and its workflow are one transaction. How many pages there are is found out by the first job.
    """
    with transaction.atomic():
        export.save()
        with workflow(f"export {export.pk}") as flow:
            collected = flow.add(collect_orders.bind(export.pk), name="collect")
            pages = flow.add_many([], after=collected, name="pages", collect=True)
            joined = flow.add(join_pages.bind(export.pk), after=pages, name="join")
            flow.add(mail_export.bind(export.pk), after=joined, name="mail")
        export.workflow = flow.handle.id
        export.save(update_fields=["workflow"])


@periodic("0 7 * * mon", timezone="UTC")
@task(queue="exports", atomic=True)
def export_every_week() -> None:
    """Begin an export every Monday. Once in effect: the workflow and the end of this job are one transaction."""
    begin_export(Export())


@task(queue="exports", atomic=True)
def collect_orders(export_id: int) -> None:
    """Add a page for each product that was ordered to the next stage. Once in effect, by ``atomic=True``."""
    products = Order.objects.order_by("product").values_list("product", flat=True).distinct()
    current_workflow().add_many([write_page.bind(export_id, product_id) for product_id in products], stage="pages")


@task(queue="exports", max_attempts=3)
def write_page(export_id: int, product_id: int) -> str:
    """Write the orders of a product into a file, and return its name.

    A product without an account has to be looked at by staff: no further attempt would help. The workflow waits.

    Twice without harm: the file has the same name both times.
    """
    product = Product.objects.get(pk=product_id)
    if not product.account:
        raise Discard(f"{product} has no account. Enter it in the admin, then retry this job.")
    page = io.StringIO()
    lines = csv.writer(page)
    lines.writerow(["account", "order", "placed", "pieces", "total"])
    for order in product.order_set.order_by("pk"):
        lines.writerow([product.account, order.pk, order.placed_at.date(), order.quantity, order.total])
    return store(f"exports/{export_id}/{product_id}.csv", page.getvalue().encode())


@task(queue="exports")
def join_pages(export_id: int) -> None:
    """Put the pages into one ZIP. Twice without harm: it has the same name."""
    joined = io.BytesIO()
    with zipfile.ZipFile(joined, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in current_workflow().results("pages"):
            with default_storage.open(name) as page:
                archive.writestr(PurePosixPath(name).name, page.read())
    store(archive_of(export_id), joined.getvalue())


@task(queue="mails", max_attempts=8)
def mail_export(export_id: int) -> None:
    """Mail the ZIP. Twice without harm, as ``send_receipt``."""
    export = Export.objects.get(pk=export_id)
    if export.mailed_at:
        return
    headers = {"Message-ID": f"<export-{export.pk}@smallhours.example>"}
    message = EmailMessage("Orders for your books", "Attached.\n", to=[export.email], headers=headers)
    with default_storage.open(archive_of(export.pk)) as archive:
        message.attach("orders.zip", archive.read(), "application/zip")
    message.send()
    Export.objects.filter(pk=export_id).update(mailed_at=Now())


def archive_of(export_id: int) -> str:
    return f"exports/{export_id}/orders.zip"


def store(name: str, content: bytes) -> str:
    """Write a file in place of the one that is there; return its name."""
    default_storage.delete(name)
    return default_storage.save(name, ContentFile(content))
