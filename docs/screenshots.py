"""Takes the pictures of docs/how-to/admin.md from a demo that runs: light and dark, at twice the pixels of a screen.

make demo                                               # prints address and password; let it run for a while
python docs/screenshots.py --site http://127.0.0.1:8000 --password=...
python docs/screenshots.py --site ... --password=... --only overview,queues
"""

import argparse
import io
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent / "how-to" / "images"
APP = "/admin/pgqueue"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")

SIZE = {"width": 1280, "height": 800}
TALLEST = 1050
TALL = {"overview": 1.5}
"""Pages that deserve more."""
WIDTH = 1400
"""Of the files."""
QUALITY = 55

LOOKS, PAUSE_MILLISECONDS = 60, 5000

PAGES: dict[str, str] = {
    "overview": f"{APP}/overview/",
    "jobs": f"{APP}/job/",
    "job": f"{APP}/job/?status=running",
    "waiting-job": f"{APP}/job/?queue=letters",
    "dead-jobs": f"{APP}/deadjob/",
    "causes": f"{APP}/deadjob/causes/",
    "dead-job": f"{APP}/deadjob/?reason=exhausted",
    "retry": f"{APP}/deadjob/?reason=exhausted",
    "succeeded-jobs": f"{APP}/succeededjob/",
    "succeeded-job": f"{APP}/succeededjob/",
    "queues": f"{APP}/queue/",
    "queue": f"{APP}/queue/newsletter/change/",
    "schedules": f"{APP}/schedule/",
    "schedule": f"{APP}/schedule/",
    "workers": f"{APP}/worker/",
    "worker": f"{APP}/worker/",
    "workflows": f"{APP}/workflow/",
    "workflow": f"{APP}/workflow/",
    "bulk_actions": f"{APP}/bulkaction/",
    "bulk_action": f"{APP}/bulkaction/",
}
"""Where they are; of one row: the list that it is the first of."""

ROWS = {
    "job": "search",
    "waiting-job": "",
    "dead-job": "",
    "retry": "",
    "succeeded-job": "",
    "schedule": "rates",
    "worker": "",
    "workflow": "",
    "bulk_action": "",
}
"""Pages of one row, with a word in the line of the list by which it is found."""

BEHIND = {"retry": "Retry with changed arguments"}
"""Pages behind a link of that."""


def main() -> None:
    options = parse()
    IMAGES.mkdir(exist_ok=True)
    chosen = set(filter(None, options.only.split(",")))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            page = logged_in(browser, options, theme)
            for name in PAGES:
                if not chosen or name in chosen:
                    take(page, options.site, name, theme)
        browser.close()


def parse() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--site", required=True)
    made.add_argument("--username", default="demo")
    made.add_argument("--password", required=True)
    made.add_argument("--only", default="", metavar="NAMES", help="of pages, separated by commas")
    return made.parse_args()


def logged_in(browser: Browser, options: argparse.Namespace, theme: Any) -> Page:
    context = browser.new_context(
        viewport=SIZE,  # type: ignore[arg-type]
        device_scale_factor=2,
        color_scheme=theme,
        locale="en-GB",
    )
    page = context.new_page()
    page.goto(f"{options.site}/admin/login/?next=/admin/")
    page.get_by_label("Username").fill(options.username)
    page.get_by_label("Password").fill(options.password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/admin/")
    return page


def take(page: Page, site: str, name: str, theme: str) -> None:
    page.goto(site + PAGES[name])
    if name in ROWS:
        page.goto(site + address_of_row(page, ROWS[name]))
    if name in BEHIND:
        page.get_by_role("link", name=BEHIND[name]).click()
    page.wait_for_load_state("networkidle")
    height = min(page.evaluate("document.documentElement.scrollHeight"), round(TALLEST * TALL.get(name, 1)))
    clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": height}
    shot = page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
    save(shot, IMAGES / f"admin-{name}-desktop-{theme}.webp")


def address_of_row(page: Page, words: str) -> str:
    """Return where a row of the list leads; what is not there now, as a job that runs, comes again in some minutes."""
    line = page.locator("#result_list tbody tr, .results tbody tr").filter(has_text=re.compile(words)).first
    for _ in range(LOOKS):
        if line.count():
            break
        page.wait_for_timeout(PAUSE_MILLISECONDS)
        page.reload()
    return str(line.locator("th a, td a").first.get_attribute("href"))


def save(shot: bytes, path: Path) -> None:
    """Write a picture as small as it can still be read."""
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    picture.thumbnail((WIDTH, 10_000), Image.Resampling.LANCZOS)
    picture.save(path, "WEBP", quality=QUALITY, method=6)
    print(f"{path.stat().st_size / 1024:6.1f} kB  {path.name}", file=sys.stderr)  # noqa: T201 - a script


if __name__ == "__main__":
    main()
