"""The example project: its demo runs from nothing, and fails where a figure is wrong."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import folder_of_a_server
from tests.support.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS

PROJECT = Path(__file__).parent.parent / "example_project"
LINE = re.compile(r"^  (\w.*?) +(\d+) +(\d+)(  <-- wrong)?$", re.MULTILINE)
NOT_OURS = {"DATABASE_URL", "DJANGO_SETTINGS_MODULE", "SHOP_VAR", "EMAIL_HOST", "EMAIL_PORT", "COURIER_URL", "DEBUG"}
NOT_OURS |= {"ALLOWED_HOSTS", "SECRET_KEY", "TIME_ZONE"}
MIGRATE = "from django.core.management import call_command\ncall_command('migrate', verbosity=0)\n"
"""For one command that does something more: each starts Python, Django and the server."""


@pytest.fixture(scope="module")
def shop():
    """A folder of its own for all that the shop writes, its database included."""
    with folder_of_a_server() as folder:
        yield folder


def demo(shop, *options):
    return manage(shop, "demo", "--once", f"--wait={PATIENCE_SECONDS}", *options)


def manage(shop, *words):
    environment = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    return subprocess.run(
        [sys.executable, PROJECT / "manage.py", *words],
        env=environment | {"SHOP_VAR": str(shop)},
        check=False,
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE_SECONDS,
    )


def figures(result):
    return {name: (int(expected), int(seen)) for name, expected, seen, _ in LINE.findall(result.stdout)}


def test_demo_does_all_the_work_and_every_figure_is_right(shop):
    result = demo(shop)
    assert result.returncode == 0, result.stdout + result.stderr
    seen = figures(result)
    retried = seen.pop("jobs retried, then succeeded")
    assert retried[0] == retried[1] in {2, 3}  # every second order, wherever the numbers begin
    assert seen == {
        "orders saved": (6, 6),
        "receipts received by the mail server": (6, 6),
        "pieces counted as sold": (10, 10),
        "parcels accepted by the courier": (5, 5),
        "thumbnails written": (4, 4),
        "dead: the courier kept refusing": (1, 1),
        "dead: the photo cannot be read": (1, 1),
        "dead: the product has no account": (1, 1),
        "jobs that wait for it: join, mail": (2, 2),
        "jobs still to be run": (0, 0),
        "jobs in all": (30, 30),
        "pages of the export, by mail": (4, 4),
        "orders on them": (6, 6),
        "jobs of the export left": (0, 0),
    }


def test_demo_fails_when_work_is_left_and_the_next_one_counts_only_its_own(shop):
    assert manage(shop, "shell", "-c", MIGRATE + 'call_command("pgqueue_queues", "pause", "webhooks")').returncode == 0
    hasty = demo(shop, "--wait=0")
    assert hasty.returncode == 1, hasty.stdout + hasty.stderr
    assert "Not every figure is right." in hasty.stderr
    assert figures(hasty)["dead: the courier kept refusing"] == (1, 0)
    assert manage(shop, "pgqueue_queues", "resume", "webhooks").returncode == 0
    patient = demo(shop)
    assert patient.returncode == 0, patient.stdout + patient.stderr


def test_report_marks_the_figure_that_is_wrong():
    report = load("report")
    figures = [report.Figure("orders saved", 6, 6), report.Figure("thumbnails written", 4, 3)]
    assert not report.all_right(figures)
    orders, thumbnails = report.table(figures).splitlines()[1:]
    assert "wrong" not in orders
    assert thumbnails.endswith("<-- wrong")


def test_report_of_nothing_is_not_right():
    assert not load("report").all_right([])


def load(name):
    spec = importlib.util.spec_from_file_location(f"demo_{name}", PROJECT / "demo" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_demo_gives_itself_no_superuser_in_a_database_of_others():
    make = "from django.contrib.auth.models import User\nUser.objects.create_user('demo', password='mine')"
    look = "from django.contrib.auth.models import User; print('superuser:', User.objects.get().is_superuser)"
    with folder_of_a_server() as folder:
        assert manage(folder, "shell", "-c", MIGRATE + make).returncode == 0
        refused = demo(folder)
        assert (refused.returncode, "was not made by the demo" in refused.stderr) == (1, True)
        assert "superuser: False" in manage(folder, "shell", "-c", look).stdout
