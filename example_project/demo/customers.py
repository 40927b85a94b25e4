"""The first visitors: they order through the shop's pages, and staff uploads photos. Nothing here takes a short cut."""

import re
from dataclasses import dataclass, field
from uuid import UUID

from demo.browser import Browser
from demo.pictures import is_whole, pictures

ORDERS = [
    ("Ada", "Desk lamp", 1, "harbour"),
    ("Grace", "Night light", 3, "harbour"),
    ("Barbara", "Storm lantern", 2, "harbour"),
    ("Donald", "Desk lamp", 1, "harbour"),
    ("Radia", "Reading lamp", 2, "harbour"),
    ("Edsger", "Reading lamp", 1, "hill"),
]
CLOSED = "hill"


@dataclass
class Visit:
    """What was asked of the shop, and so what has to come out."""

    references: dict[UUID, str] = field(default_factory=dict)  # of orders, with their pick-up points
    pieces: int = 0
    photos: int = 0
    torn: int = 0


def visit(site: str, *, username: str, password: str, say) -> Visit:
    """Upload the photos and place the orders."""
    done = Visit()
    upload_photos(Browser(site), username, password, done)
    say(f"{done.photos + done.torn} photos uploaded, one of them torn")
    place_orders(Browser(site), done)
    say(f"{len(done.references)} orders placed, one for a pick-up point that is closed")
    return done


def upload_photos(browser: Browser, username: str, password: str, done: Visit) -> None:
    browser.submit("/admin/login/?next=/photos/", {"username": username, "password": password})
    by_product: dict[str, list[tuple[str, bytes]]] = {}
    for product, name, content in pictures():
        by_product.setdefault(product, []).append((name, content))
        done.photos += is_whole(name)
        done.torn += not is_whole(name)
    products = products_on(browser.get("/photos/"))
    for product, images in by_product.items():
        browser.submit("/photos/", {"product": products[product]}, {"images": images})


def place_orders(browser: Browser, done: Visit) -> None:
    products = products_on(browser.get("/"))
    for name, product, quantity, point in ORDERS:
        address = browser.submit(
            "/",
            {
                "product": products[product],
                "quantity": quantity,
                "name": name,
                "email": f"{name.lower()}@customers.example",
                "pickup_point": point,
            },
        )
        done.references[UUID(address.strip("/").removeprefix("orders/"))] = point
        done.pieces += quantity


def products_on(page: str) -> dict[str, str]:
    """Return what a page offers in its list of products: name -> value."""
    return {name: value for value, name in re.findall(r'<option value="(\d+)"[^>]*>([^<]+)</option>', page)}
