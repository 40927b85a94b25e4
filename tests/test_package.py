"""What is in the built package, and that it works where nothing else of this repository is."""

from pathlib import Path

import pytest

SETTINGS = """
import os

DATABASES["default"] = {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}
INSTALLED_APPS += ["django_pgqueue", "shop"]
"""

TASKS = """
from pathlib import Path

import django_pgqueue


@django_pgqueue.task
def pack(order_id: int) -> None:
    Path("packed.txt").write_text(f"order {order_id} by {django_pgqueue.__file__}")
"""


@pytest.fixture
def site(tmp_path, outside):
    """An empty project with an app that has a task."""
    outside.run("-m", "django", "startproject", "mysite", str(tmp_path), cwd=tmp_path)
    outside.run("manage.py", "startapp", "shop", cwd=tmp_path)
    with (tmp_path / "mysite" / "settings.py").open("a") as file:
        file.write(SETTINGS)
    (tmp_path / "shop" / "tasks.py").write_text(TASKS)
    return tmp_path


def test_wheel_works_in_an_empty_project(site, outside, libpq):
    def manage(*arguments):
        return outside.run("manage.py", *arguments, cwd=site, **libpq)

    assert "no issues" in manage("check")
    manage("migrate")
    manage("shell", "-c", "from shop.tasks import pack; pack.enqueue(7)")
    manage("pgqueue_worker", "--drain")
    order, _, file = (site / "packed.txt").read_text().partition(" by ")
    assert order == "order 7"
    assert Path(file).is_relative_to(outside.python.parent.parent)
