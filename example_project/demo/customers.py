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
NEW, ITS_ACCOUNT = "Storm lantern", "8420"
"""The product that has no account yet, and the one that staff enters."""
BOOKKEEPER = "books@customers.example"


@dataclass
class Visit:
    """What was asked of the shop, and so what has to come out."""

    references: dict[UUID, str] = field(default_factory=dict)  # of orders, with their pick-up points
    pieces: int = 0
    photos: int = 0
    torn: int = 0
    products: set[str] = field(default_factory=set)  # that were ordered


def visit(site: str, *, username: str, password: str, say) -> Visit:
    """Upload the photos and place the orders."""
    done = Visit()
    upload_photos(logged_in(site, "/photos/", username=username, password=password), done)
    say(f"{done.photos + done.torn} photos uploaded, one of them torn")
    place_orders(Browser(site), done)
    say(f"{len(done.references)} orders placed, one for a pick-up point that is closed")
    browser = logged_in(site, "/exports/", username=username, password=password)
    browser.submit("/exports/", {"email": BOOKKEEPER})
    say("an export of the orders begun, one of its products without an account")
    return done


def repair(site: str, dead: int, *, username: str, password: str) -> None:
    """Do as staff does in the admin: enter the account that was missing, and retry the dead job."""
    browser = logged_in(site, "/exports/", username=username, password=password)
    products = products_on(browser.get("/"))
    address = f"/admin/shop/product/{products[NEW]}/change/"
    browser.submit(address, {"name": NEW, "price": "42.00", "account": ITS_ACCOUNT})
    browser.submit("/admin/pgqueue/deadjob/retry/", {"ids": dead, "confirmed": "yes"})


def logged_in(site: str, page: str, *, username: str, password: str) -> Browser:
    browser = Browser(site)
    browser.submit(f"/admin/login/?next={page}", {"username": username, "password": password})
    return browser


def upload_photos(browser: Browser, done: Visit) -> None:
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
        done.products.add(product)


def products_on(page: str) -> dict[str, str]:
    """Return what a page offers in its list of products: name -> value."""
    return {name: value for value, name in re.findall(r'<option value="(\d+)"[^>]*>([^<]+)</option>', page)}
