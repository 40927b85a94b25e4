"""Stand-ins for what docs/how-to/write-tasks.md takes for granted; its pieces of code are checked as modules."""

from typing import ClassVar

from django.db import models

from django_pgqueue import task


class Order(models.Model):
    objects: ClassVar[models.Manager["Order"]]


class Warehouse:
    def send(self, order: Order) -> None:
        raise NotImplementedError


@task(queue="mails")
def send_receipt(order_id: int) -> None: ...


@task
def make_report(month: int) -> str:
    return f"/reports/{month}/"


order = Order()
warehouse = Warehouse()
CART = {"article": 7}
