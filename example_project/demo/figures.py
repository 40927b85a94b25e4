"""Counts what came out of a visit, each figure where it shows: in mailbox, files, the courier's book and the queue."""

import csv
import io
import zipfile

from django.db import connection, transaction
from django.db.models import Q, Sum
from PIL import Image
from shop.models import Export, Order, Photo, Product
from shop.tasks import THUMBNAIL_PIXELS

from demo.customers import BOOKKEEPER, CLOSED, NEW, Visit
from demo.mailbox import received
from demo.models import Parcel
from demo.report import Figure
from django_pgqueue import workflows
from django_pgqueue.models import DeadJob, Job, SucceededJob


class Scene:
    """The shop as it was before a visit; what came later is the visit's."""

    def __init__(self) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # a sale is to be counted, or it was
            cursor.execute("SELECT statement_timestamp()")  # the clock by which jobs and orders are dated
            [self.began_at] = cursor.fetchone()
            self.sold = pieces_sold() + pieces_to_count()

    def is_busy(self) -> bool:
        """Whether a job is still to be run; those behind a dead one are not, before that is repaired."""
        return self._jobs(Job).exclude(status="blocked").exists() or any(map(goes_on, self._exports()))

    def progress(self) -> str:
        return (
            f"{self._jobs(SucceededJob).count()} jobs succeeded, {self._jobs(DeadJob).count()} dead, "
            f"{self._jobs(Job).count()} to go"
        )

    def figures(self, visit: Visit) -> list[Figure]:
        """Compare what was asked of the shop with what it did."""
        orders = Order.objects.filter(reference__in=visit.references)
        numbers = list(orders.values_list("pk", flat=True))
        delivered = [reference for reference, point in visit.references.items() if point != CLOSED]
        busy = [
            number
            for number in orders.filter(reference__in=delivered).values_list("pk", flat=True)
            if Parcel(order=number).meets_a_busy_courier
        ]
        succeeded, dead = self._jobs(SucceededJob), self._jobs(DeadJob)
        return [
            Figure("orders saved", len(visit.references), len(numbers)),
            Figure("receipts received by the mail server", len(visit.references), receipts(visit)),
            Figure("pieces counted as sold", visit.pieces, pieces_sold() - self.sold),
            Figure(
                "parcels accepted by the courier",
                len(delivered),
                Parcel.objects.filter(order__in=numbers).exclude(accepted_at=None).count(),
            ),
            Figure("thumbnails written", visit.photos, self._thumbnails()),
            Figure("jobs retried, then succeeded", len(busy), succeeded.filter(attempts__gt=1).count()),
            Figure(
                "dead: the courier kept refusing",
                len(visit.references) - len(delivered),
                dead.filter(task="shop.tasks.tell_courier", reason="exhausted").count(),
            ),
            Figure(
                "dead: the photo cannot be read",
                visit.torn,
                dead.filter(task="shop.tasks.make_thumbnail", reason="discarded").count(),
            ),
            Figure(
                "dead: the product has no account",
                NEW in visit.products,
                dead.filter(task="shop.tasks.write_page", reason="discarded").count(),
            ),
            Figure("jobs that wait for it: join, mail", 2, self._jobs(Job).filter(status="blocked").count()),
            Figure("jobs still to be run", 0, self._jobs(Job).exclude(status="blocked").count()),
            Figure(
                "jobs in all",
                3 * len(visit.references) + visit.photos + visit.torn + 3 + len(visit.products),
                succeeded.count() + dead.count() + self._jobs(Job).count(),
            ),
        ]

    def page_without_account(self) -> int | None:
        """Return the id of the dead job that staff can repair; None: there is none."""
        return self._jobs(DeadJob).filter(task="shop.tasks.write_page").values_list("pk", flat=True).first()

    def figures_of_export(self, visit: Visit) -> list[Figure]:
        """Compare the export in the mailbox with the orders, after the repair."""
        pages = mailed_pages(self._exports())
        numbers = {line["order"] for page in pages for line in page}
        ours = Order.objects.filter(reference__in=visit.references)
        return [
            Figure("pages of the export, by mail", len(visit.products), len(pages)),
            Figure("orders on them", len(visit.references), sum(str(order.pk) in numbers for order in ours)),
            Figure("jobs of the export left", 0, self._jobs(Job).count()),
        ]

    def _exports(self) -> list[Export]:
        return list(Export.objects.filter(asked_at__gte=self.began_at, email=BOOKKEEPER))

    def _jobs(self, table):
        """Return the jobs since then, but for those of schedules, which may be due in the middle of a visit.

        Schedules begin workflows too: of members only those of the visit's exports belong to it.
        """
        ours = [stage.id for export in self._exports() for stage in workflows.get(export.workflow).state().stages]
        of_visit = Q(stage_id=None) | Q(stage_id__in=ours)
        return table.objects.filter(of_visit, enqueued_at__gte=self.began_at, schedule_id=None)

    def _thumbnails(self) -> int:
        photos = Photo.objects.filter(uploaded_at__gte=self.began_at).exclude(thumbnail="")
        return sum(is_thumbnail(photo.thumbnail) for photo in photos)


def pieces_sold() -> int:
    return Product.objects.aggregate(pieces=Sum("sold", default=0))["pieces"]


def pieces_to_count() -> int:
    """Return what an earlier visit has ordered, and the worker has not counted yet."""
    numbers = [number for [number] in Job.objects.filter(task="shop.tasks.count_sale").values_list("args", flat=True)]
    return Order.objects.filter(pk__in=numbers).aggregate(pieces=Sum("quantity", default=0))["pieces"]


def receipts(visit: Visit) -> int:
    """Count the receipts in the mailbox that belong to the visit's orders."""
    ours = {f"<receipt-{reference}@smallhours.example>" for reference in visit.references}
    return sum(mail["Message-ID"].strip() in ours for mail in received())


def is_thumbnail(file) -> bool:
    """Whether the file is there, is an image and has the right size."""
    try:
        with file.open(), Image.open(file) as image:
            image.load()
            return max(image.size) == THUMBNAIL_PIXELS
    except OSError:
        return False


def goes_on(export: Export) -> bool:
    """Whether its workflow is open and waits for no dead job."""
    state = workflows.get(export.workflow).state()
    return not (state.is_finished or state.is_stuck)


def mailed_pages(exports: list[Export]) -> list[list[dict[str, str]]]:
    """Return the lines of each page that was mailed to the bookkeeper."""
    ours = {f"<export-{export.pk}@smallhours.example>" for export in exports}
    mails = [mail for mail in received() if mail["Message-ID"].strip() in ours]
    return [page for mail in mails for file in mail.iter_attachments() for page in pages_of(file.get_content())]


def pages_of(content: bytes) -> list[list[dict[str, str]]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [[*csv.DictReader(io.StringIO(archive.read(name).decode()))] for name in archive.namelist()]
