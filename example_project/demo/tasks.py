"""More work than the shop's own, of all kinds: so that the pages of the admin have something to show.

How tasks are written is shown by ``shop/tasks.py``. Here work is only played: it waits, and now and then fails.
"""

import datetime as dt
import random
import time

from django_pgqueue import Discard, Limit, current_job, periodic, task

CLOSED_SHARE = 0.6
"""How often the exchange does not answer."""


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
