"""The project that docs/how-to/write-tasks.md takes for granted: what its pieces of code use and do not define."""

from types import SimpleNamespace
from typing import Any

from django.core.mail import send_mail
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_pgqueue import current_job, task
from tests.app.models import Mark as Order

order = Order(pk=4711)
CART = {"article": "7"}


class Provider:
    """Takes payments, as far as it is told to."""

    def __init__(self) -> None:
        self.charged: list[int] = []
        self.reply = SimpleNamespace(status_code=200, headers={})

    def charge(self, charged: Order) -> Any:
        self.charged.append(charged.pk)
        return self.reply


provider = Provider()


@task(queue="mails")
def send_receipt(order_id: int) -> None:
    reader = "support" if current_job().attempt == 3 else "customer"
    send_mail(f"Order {order_id}", "Thank you.", None, [f"{reader}@example.com"])


@task
def make_report(month: int) -> str:
    return f"/reports/{month}/"


def buy(request: HttpRequest) -> HttpResponse:
    send_receipt.enqueue(Order.objects.create(job_id=0, label=request.POST["article"]).pk)
    return HttpResponse("Thank you.")


urlpatterns = [path("buy/", buy)]
