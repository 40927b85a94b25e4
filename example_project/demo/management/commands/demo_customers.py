import contextlib
import itertools
import os
import random
import time
from urllib.error import URLError

from django.core.management.base import BaseCommand
from shop.models import Order

from demo import tasks
from demo.browser import Browser
from demo.customers import CLOSED, products_on
from demo.stage import send_the_newsletter
from django_pgqueue.models import Job

NAMES = ["Ada", "Grace", "Barbara", "Donald", "Radia", "Edsger", "Margaret", "Niklaus", "Frances", "Tony"]
SECONDS = 3.0
"""Between two orders, on the average."""
FAR, PRINTED = 0.07, 0.3
"""The share of orders for the pick-up point that is closed, and of those that need a label."""

TRIED_AGAIN, CLEARED = 240, 60
"""Orders after which staff has all dead calls to the courier tried again, and has labels that came too late removed."""


class Command(BaseCommand):
    help = "Let customers order through the shop's pages, one every few seconds, until it is stopped."
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("--site", required=True, help="the shop's address")

    def handle(self, *, site, **_):
        for number in itertools.count(1):
            time.sleep(min(random.expovariate(1 / SECONDS), 5 * SECONDS))
            with contextlib.suppress(URLError, OSError, ValueError):  # the shop may be busy, or stopping
                order_something(Browser(site))
                if number % TRIED_AGAIN == 0:
                    do_to_all(Browser(site), "retry", "shop.tasks.tell_courier", rate=0.1)
                if number % CLEARED == 0:
                    do_to_all(Browser(site), "purge", "demo.tasks.print_label", rate=0.3)


def order_something(browser: Browser) -> None:
    """Order, now and then for the pick-up point that is closed, and let the world outside work for it too."""
    name = random.choice(NAMES)
    product = random.choice(list(products_on(browser.get("/")).values()))
    fields = {"product": product, "quantity": random.randint(1, 3), "name": name, "email": f"{name.lower()}@x.example"}
    address = browser.submit("/", {**fields, "pickup_point": CLOSED if random.random() < FAR else "harbour"})
    order = Order.objects.only("pk").get(reference=address.strip("/").removeprefix("orders/"))
    tasks.write_invoice.enqueue(random.choice(NAMES[:3]), order.pk)
    if random.random() < PRINTED:
        tasks.print_label.enqueue(order.pk)
    if not Job.objects.filter(queue="newsletter", status="queued").exists():
        send_the_newsletter()


def do_to_all(browser: Browser, action: str, task: str, *, rate: float) -> None:
    """Do something to all dead jobs of a task, as staff does it in the admin: in the background, at a slow rate."""
    who = {"username": os.environ["STAFF_USERNAME"], "password": os.environ["STAFF_PASSWORD"]}
    browser.submit("/admin/login/?next=/photos/", who)
    browser.submit(f"/admin/pgqueue/deadjob/{action}/matching/?task={task}", {"rate": rate})
