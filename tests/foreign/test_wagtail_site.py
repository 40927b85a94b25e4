"""A site of Wagtail, as ``wagtail start`` makes it: its tasks are our jobs, and its editor is a Chromium."""

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import CHROMIUM, PATIENCE
from tests.foreign.environment import INSIDE, Foreign
from tests.support import needs
from tests.support.pages import DOCS, blocks
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SECONDS, eventually

REQUIREMENTS = "wagtail"

HOME = 3
"""The id of the home page, which the first migrations of a new site make."""

TASKS = ["modelsearch.tasks.insert_or_update_object_task", "wagtail.tasks.update_reference_index_task"]
"""What Wagtail enqueues for a page, three times each; the settings let one of each wait."""

PUBLISH_AND_DELETE = """
from home.models import HomePage
from wagtail.models import Page
page = Page.objects.get(slug="home").add_child(instance=HomePage(title="Trilobites"))
page.save_revision().publish()
page.delete()
"""

UPLOAD = """
import io
from django.core.files.base import ContentFile
from PIL import Image as Picture
from wagtail.images.models import Image
file = io.BytesIO()
Picture.new("RGB", (1000, 800)).save(file, "PNG")
Image.objects.create(title="Ammonite", file=ContentFile(file.getvalue(), "ammonite.png"))
"""
RENDITIONS = """
from wagtail.images.models import Image
print(*sorted(Image.objects.get().renditions.values_list("filter_spec", flat=True)))
"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=needs.CHROMIUM)


class Site:
    def __init__(self, foreign: Foreign) -> None:
        self._foreign = foreign
        foreign.run("-m", "wagtail.bin.wagtail", "start", "museum")
        self.folder = foreign.folder / "museum"
        shutil.copy(INSIDE / "site_settings.py", self.folder / "museum" / "settings" / "local.py")
        [_, renditions] = blocks(DOCS / "how-to" / "wagtail.md", "python")
        (self.folder / "home" / "tasks.py").write_text(renditions)
        self.url = f"http://127.0.0.1:{free_port()}"

    def manage(self, *arguments: str, **environment: str) -> str:
        return self._foreign.run("manage.py", *arguments, cwd=self.folder, **environment)

    def start(self, *arguments: str, log: str) -> subprocess.Popen[bytes]:
        return self._foreign.start("manage.py", *arguments, cwd=self.folder, log=self.folder / log)

    def answers(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.url}/admin/login/", timeout=PATIENCE_SECONDS).status == 200
        except urllib.error.URLError:
            return False

    def jobs(self, *options: str) -> list[dict]:
        return json.loads(self.manage("pgqueue_jobs", "list", "--json", *options))["jobs"]


@pytest.fixture(scope="module")
def site(foreign) -> Iterator[Site]:
    site = Site(foreign)
    site.manage("migrate", "--verbosity", "0")
    site.manage(
        *("createsuperuser", "--noinput", "--username", "ada", "--email", "ada@example.com"),
        DJANGO_SUPERUSER_PASSWORD="tests only",
    )
    server = site.start("runserver", "--noreload", site.url.removeprefix("http://"), log="server.log")
    try:
        eventually(site.answers)
        yield site
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def editor(site) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{site.url}/admin/login/")
        page.fill("input[name=username]", "ada")
        page.fill("input[name=password]", "tests only")
        page.click("button[type=submit]")
        page.wait_for_url("**/admin/")
        yield page
        browser.close()


def test_check_says_nothing_of_the_packages_that_import_the_backport(site):
    assert site.start("check", log="check.log").wait(PATIENCE_SECONDS) == 0
    assert "pgqueue.W010" not in (site.folder / "check.log").read_text()


def test_published_page_is_found_as_soon_as_a_worker_has_run(site, editor):
    dead_before = {job["id"] for job in site.jobs("--status", "dead")}  # of the test below, where it came first
    editor.goto(f"{site.url}/admin/pages/add/home/homepage/{HOME}/")
    editor.fill("input[name=title]", "Ammonites of the Jura")
    # Where the title is typed before the scripts of the page are ready, the slug, on another tab, does not follow it.
    editor.locator("input[name=slug]").evaluate("field => { field.value = 'ammonites' }")
    editor.locator("footer [data-w-dropdown-target=toggle]").first.click()
    editor.click("button[name=action-publish]")
    editor.wait_for_url("**/admin/pages/*/")

    def found() -> list[str]:
        editor.goto(f"{site.url}/admin/pages/search/?q=ammonites")
        return editor.locator(".listing .title").all_inner_texts()

    assert found() == []
    waiting = site.jobs()
    assert sorted(job["task"] for job in waiting) == TASKS
    worker = site.start("pgqueue_worker", log="worker.log")
    try:
        assert "Ammonites of the Jura" in "".join(eventually(found))
        eventually(lambda: not site.jobs())
    finally:
        worker.terminate()
        assert worker.wait(PATIENCE_SECONDS) == 0
    dead = {job["id"] for job in site.jobs("--status", "dead")} - dead_before
    assert [site.manage("pgqueue_jobs", "show", str(job_id)) for job_id in dead] == []


def test_task_of_a_page_that_is_gone_is_discarded(site):
    site.manage("shell", "-v", "0", "-c", PUBLISH_AND_DELETE)
    assert len(site.jobs()) == len(TASKS)
    site.manage("pgqueue_worker", "--drain")
    assert [(job["reason"], job["attempts"]) for job in site.jobs("--status", "dead")] == [("discarded", 1)] * len(
        TASKS
    )


def test_renditions_are_made_by_the_task_of_the_page(site):
    site.manage("shell", "-v", "0", "-c", UPLOAD)
    assert "home.tasks.make_renditions" in {job["task"] for job in site.jobs()}
    site.manage("pgqueue_worker", "--drain")
    assert site.manage("shell", "-v", "0", "-c", RENDITIONS).split() == ["fill-400x300", "width-800"]
