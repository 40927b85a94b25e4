"""The project of docs/how-to/write-tasks.md and failures.md: the names that their code uses and does not define."""

from types import SimpleNamespace
from typing import Any

from django.core.mail import send_mail
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_pgqueue import task
from tests.app.models import Mark as Order

order = Order(pk=4711)
CART = {"article": "7"}


class Warehouse:
    """Takes orders, unless it is closed."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.is_closed = False

    def send(self, order: Order) -> None:
        if self.is_closed:
            raise ConnectionError
        self.sent.append(order.pk)


class Provider:
    """Takes payments, as far as it is told to."""

    def __init__(self) -> None:
        self.charged: list[int] = []
        self.reply = SimpleNamespace(status_code=200, headers={})

    def charge(self, charged: Order) -> Any:
        self.charged.append(charged.pk)
        return self.reply


provider = Provider()
warehouse = Warehouse()


@task(queue="mails")
def send_receipt(order_id: int) -> None:
    order = Order.objects.get(pk=order_id)
    send_mail(f"Order {order.pk}", "Thank you.", None, ["customer@example.com"])


@task
def make_report(month: int) -> str:
    return f"/reports/{month}/"


def buy(request: HttpRequest) -> HttpResponse:
    send_receipt.enqueue(Order.objects.create(job_id=0, label=request.POST["article"]).pk)
    return HttpResponse("Thank you.")


urlpatterns = [path("buy/", buy)]
