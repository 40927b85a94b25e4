"""Counts what came out of a visit, each figure where it shows: in mailbox, files, the courier's book and the queue."""

from django.db import connection, transaction
from django.db.models import Sum
from PIL import Image
from shop.models import Order, Photo, Product
from shop.tasks import THUMBNAIL_PIXELS

from demo.customers import CLOSED, Visit
from demo.mailbox import received
from demo.models import Parcel
from demo.report import Figure
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
        """Whether a job is still to be run."""
        return self._jobs(Job).exists()

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
            Figure("jobs still to be run", 0, self._jobs(Job).count()),
            Figure(
                "jobs in all",
                3 * len(visit.references) + visit.photos + visit.torn,
                succeeded.count() + dead.count() + self._jobs(Job).count(),
            ),
        ]

    def _jobs(self, table):
        """Return the jobs since then, but for those of schedules, which may be due in the middle of a visit."""
        return table.objects.filter(enqueued_at__gte=self.began_at, schedule_id=None)

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
