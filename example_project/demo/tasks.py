"""More work than the shop's own, of all kinds: so that the pages of the admin have something to show.

How tasks are written is shown by ``shop/tasks.py``. Here work is only played: it waits, and now and then fails.
"""

import datetime as dt
import random
import time

from django_pgqueue import Discard, Limit, current_job, periodic, task, workflow

CLOSED_SHARE = 0.6
"""How often the exchange does not answer."""

CATALOGUE_PAGES = 40
LATE_PHOTO, LATE_SHARE = 17, 0.9
"""The page of the catalogue whose photo is often not there, and how often."""


class ExchangeClosedError(Exception):
    """The exchange that knows the rates does not answer."""


@task(queue="letters", expires=900)
def print_label(order_id: int) -> None:
    """Print the label of a parcel. The printer has run out of paper, so its queue is paused."""
    time.sleep(1)


@task(queue="newsletter", keep_result=False)
def send_newsletter(subscriber: str) -> None:
    """Send one copy; the mail provider limits the rate, and the queue has that limit."""
    time.sleep(random.uniform(0.1, 0.4))


@task(queue="bookkeeping", limit=Limit("customer"))
def write_invoice(customer: str, order_id: int) -> None:
    """Book an order and write its invoice. Two at once would get the same number: a customer's wait for each other."""
    time.sleep(random.uniform(4, 12))


@periodic(every=dt.timedelta(minutes=4), name="rebuild the search index")
@task(queue="search", unique=(), max_attempts=2)
def rebuild_search() -> None:
    """Index all products, and tell how far it is; one at a time is enough."""
    pages = 600
    for done in range(1, pages + 1):
        if current_job().is_kill_requested:
            raise Discard("The index was left as it was.")
        time.sleep(0.3)
        current_job().set_progress(done, pages, f"page {done} of {pages}")


class NoPhotoError(Exception):
    """The photo of a page is not there yet."""


@task(queue="catalogue", max_attempts=1)
def set_page(number: int) -> None:
    """Set one page; without its photo it dies, and the catalogue waits until that is retried."""
    time.sleep(random.uniform(1, 5))
    if number == LATE_PHOTO and random.random() < LATE_SHARE:
        raise NoPhotoError(f"page {number} has no photo yet")


@task(queue="catalogue")
def catalogue_step(what: str) -> None:
    """Do one of the other steps, which all take their time."""
    time.sleep(random.uniform(2, 6))


@periodic(every=dt.timedelta(minutes=5), name="make the catalogue")
@task(queue="catalogue", keep_result=False)
def make_catalogue() -> None:
    """Begin the next catalogue, unless one is being made."""
    with workflow("catalogue", unique_key="catalogue", context={"season": "winter"}) as flow:
        products = flow.add(catalogue_step.bind("choose the products"), name="products")
        pages = flow.add_many(
            [set_page.bind(number + 1) for number in range(CATALOGUE_PAGES)], after=products, name="pages"
        )
        prices = flow.add_many(
            [catalogue_step.bind(f"prices in {zone}") for zone in ("EU", "US")], after=products, name="prices"
        )
        book = flow.add(catalogue_step.bind("bind"), after=[pages, prices], name="bind")
        flow.add(catalogue_step.bind("tell the editor"), after=pages, when="died", name="tell the editor")
        flow.add(catalogue_step.bind("mail"), after=book, name="mail")
        flow.add(catalogue_step.bind("clean up"), after=book, when="ended", name="clean up")


@periodic(every=dt.timedelta(seconds=20), name="count the visitors")
@task(queue="reports")
def count_visitors() -> int:
    return random.randint(3, 40)


@periodic("*/2 * * * *", name="fetch exchange rates")
@task(queue="reports", max_attempts=2, backoff=5)
def fetch_rates(base: str = "EUR") -> dict:
    """Ask the exchange, which is often closed."""
    time.sleep(0.5)
    if random.random() < CLOSED_SHARE:
        raise ExchangeClosedError(f"no rates for {base} at {dt.datetime.now(dt.UTC):%H:%M:%S}: the exchange is closed")
    return {base: 1, "USD": 1.1, "JPY": 163}


@periodic("*/5 * * * *", name="close the till")
@task(queue="reports", timeout=3, max_attempts=1)
def close_till() -> None:
    """Add up what was sold, which takes longer than it may where the books are long."""
    time.sleep(random.choice([1, 1, 6]))
