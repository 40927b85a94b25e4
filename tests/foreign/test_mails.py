"""Two apps that send mails in the background: django-post-office by its signal, django-celery-email by tasks."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.environment import INSIDE
from tests.support.wheel import ROOT

REQUIREMENTS = "mails"

SWITCHED = {
    "tasks.py": {
        "from celery import shared_task": "from django_pgqueue import task",
        "'ignore_result': True": "'keep_result': False",
        "@shared_task(": "@task(",
        "send_emails.retry([[message], combined_kwargs], exc=e, throw=False)": (
            "send_emails.enqueue([message], combined_kwargs)"
        ),
        "    from celery.utils.log import get_task_logger\n    logger = get_task_logger(__name__)": (
            "    import logging\n    logger = logging.getLogger(__name__)"
        ),
    },
    "backends.py": {"send_emails.delay(": "send_emails.enqueue("},
}
"""What docs/how-to/switch-from-celery.md says, in the code of django-celery-email."""

BY_POST_OFFICE = """
from django.db import transaction
from post_office import mail

def write(subject):
    mail.send(recipients="ada@example.com", subject=subject, message="...")

write("alone")
with transaction.atomic():
    for subject in "first", "second", "third":
        write(subject)
try:
    with transaction.atomic():
        write("rolled back")
        1 / 0
except ZeroDivisionError:
    pass
"""

BY_CELERY_EMAIL = """
from django.core.mail import EmailMessage, EmailMultiAlternatives, get_connection
from django.db import transaction

def letters(*numbers):
    return [EmailMessage(f"number {number}", "...", to=["ada@example.com"]) for number in numbers]

with transaction.atomic():
    get_connection().send_messages(letters(*range(23)))
rich = EmailMultiAlternatives("rich", "plain", to=["ada@example.com"])
rich.attach_alternative("<p>bold</p>", "text/html")
rich.attach("bill.txt", "one euro", "text/plain")
rich.send()
try:
    with transaction.atomic():
        get_connection().send_messages(letters(99))
        1 / 0
except ZeroDivisionError:
    pass
"""


BY_CELERY = sorted([f"number {number}" for number in range(23)] + ["rich"])


class Project:
    def __init__(self, foreign, mailbox: Path, **variables: str) -> None:
        self._foreign = foreign
        self._mailbox = mailbox
        self._variables = variables

    def manage(self, *arguments: str) -> str:
        variables = {"MAILBOX": str(self._mailbox), "DJANGO_SETTINGS_MODULE": "mails_settings"}
        return self._foreign.run("-m", "django", *arguments, **variables, **self._variables)

    def run(self, code: str) -> None:
        self.manage("shell", "-v", "0", "-c", code)

    def jobs(self) -> list[str]:
        lines = self.manage("pgqueue_jobs", "list", "--json")
        return [job["task"] for job in json.loads(lines)["jobs"]]

    def mails(self) -> list[str]:
        """Return the subjects of the mails that were sent; their texts are in files."""
        texts = [file.read_text() for file in self._mailbox.glob("*")]
        return sorted(
            line.removeprefix("Subject: ")
            for text in texts
            for line in text.splitlines()
            if line.startswith("Subject: ")
        )


@pytest.fixture(scope="module")
def migrated(foreign) -> None:
    Project(foreign, foreign.folder).manage("migrate", "-v", "0")


@pytest.fixture
def project(foreign, migrated, tmp_path) -> Project:
    return Project(foreign, tmp_path / "mails")


@pytest.fixture
def switched(foreign, tmp_path) -> Iterator[None]:
    """A copy of django-celery-email, with the lines of the guide, which goes before the one that is installed."""
    [installed] = foreign.python.parent.parent.glob("lib/python3*/site-packages/djcelery_email")
    copy = tmp_path / "switched" / "djcelery_email"
    shutil.copytree(installed, copy)
    for name, changes in SWITCHED.items():
        text = (copy / name).read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (copy / name).write_text(text)
    foreign.path.insert(0, str(copy.parent))
    yield
    del foreign.path[0]


def test_mails_of_post_office_are_sent_by_one_job(project):
    project.run(BY_POST_OFFICE)
    assert project.jobs() == ["letters.tasks.deliver"]
    assert project.mails() == []
    project.manage("pgqueue_worker", "--drain")
    assert project.mails() == ["alone", "first", "second", "third"]
    assert project.jobs() == []


def test_mails_of_celery_email_are_sent_by_a_job_for_each_chunk(switched, project):
    project.run(BY_CELERY_EMAIL)
    assert project.jobs() == ["djcelery_email_send_multiple"] * 4
    project.manage("pgqueue_worker", "--drain")
    assert project.mails() == BY_CELERY
    assert project.jobs() == []


def test_mails_of_celery_email_as_it_is_are_sent_where_celery_hands_its_tasks_on(foreign, migrated, tmp_path):
    project = Project(foreign, tmp_path, SHIM="1")
    project.run(BY_CELERY_EMAIL)
    assert project.jobs() == ["celery"] * 4
    project.manage("pgqueue_worker", "--drain")
    assert project.mails() == BY_CELERY
    assert project.jobs() == []


def test_shim_is_that_of_the_guide():
    code = (INSIDE / "shim" / "tasks.py").read_text().partition('"""\n\n')[2]
    assert code in (ROOT / "docs" / "how-to" / "switch-from-celery.md").read_text()
