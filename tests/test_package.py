"""The built package: its files, and that it works without this repository."""

import re
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from django_pgqueue.version import DISTRIBUTION
from tests.support.wheel import build

SUFFIXES = {".py", ".sql", ".html", ".css", ".js", ".mo", ".typed"}
OTHERS = {"LICENSE", "README.md"}  # of uPlot

IN_SDIST = {
    *("PKG-INFO", "pyproject.toml", ".gitignore", "Makefile"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"),
    *("django_pgqueue", "pytest_django_pgqueue.py", "tests", "example_project", "benchmarks", "docs"),
}

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


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """The other file, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(folder, kind="sdist")) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # which Python has since 3.11.4
        archive.extractall(folder)
    [unpacked] = [path for path in folder.iterdir() if path.is_dir()]
    return unpacked


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wheel_has_the_package_and_nothing_else(wheel, project):
    there = {path for path in (project / "django_pgqueue").rglob("*") if "__pycache__" not in path.parts}
    wanted = {str(path.relative_to(project)) for path in there if path.is_file() and path.suffix != ".po"}
    names = {name for name in contents(wheel) if ".dist-info/" not in name}
    assert names == wanted | {"pytest_django_pgqueue.py"}
    strange = {name for name in names if Path(name).suffix not in SUFFIXES and Path(name).name not in OTHERS}
    assert not strange


def test_wheel_has_what_is_no_python(wheel):
    """As the test above, if one of them were gone from the repository too."""
    names = contents(wheel)
    for name in (
        "py.typed",
        "jobs/sql/claim.sql",
        "templates/admin/pgqueue/overview.html",
        "static/django_pgqueue/admin.css",
        "static/django_pgqueue/uplot/LICENSE",
    ):
        assert f"django_pgqueue/{name}" in names


def test_wheel_has_the_licences_and_the_plugin_of_pytest(wheel):
    texts = {
        name.partition(".dist-info/")[2]: text.decode() for name, text in contents(wheel).items() if "info/" in name
    }
    assert set(texts) == {
        *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"),
        "licenses/django_pgqueue/static/django_pgqueue/uplot/LICENSE",
    }
    assert texts["entry_points.txt"].split() == ["[pytest11]", "pgqueue", "=", "pytest_django_pgqueue"]


def test_sdist_has_what_it_takes_to_go_on_from_there(sdist, project):
    assert {path.name for path in sdist.iterdir()} == IN_SDIST
    unwanted = {path for path in sdist.rglob("*") if path.suffix == ".pyc" or path.name.startswith(".")}
    assert {path.name for path in unwanted} <= {".gitignore"}
    for folder in ("tests", "docs", "benchmarks"):
        assert sorted(path.name for path in (sdist / folder).glob("*.*")) == sorted(
            path.name for path in (project / folder).glob("*.*") if path.suffix != ".pyc"
        )


def test_sdist_builds_the_same_wheel(sdist, wheel, tmp_path):
    assert contents(build(tmp_path, source=sdist)) == contents(wheel)


def test_metadata_say_what_the_readme_says(metadata, project):
    readme = (project / "README.md").read_text()
    assert (metadata["Name"], metadata["License-Expression"]) == (DISTRIBUTION, "BSD-3-Clause AND MIT")
    assert metadata["Description-Content-Type"] == "text/markdown"
    first, last = re.search(r"Python 3\.(\d+)\D3\.(\d+)", readme).groups()
    assert metadata["Requires-Python"] == f">=3.{first}"
    assert of(metadata, "Programming Language :: Python :: 3.") == [str(n) for n in range(int(first), int(last) + 1)]
    versions = of(metadata, "Framework :: Django :: ")
    assert re.search(rf" Django {versions[0]}\D{versions[-1]} ", readme)


def test_description_on_pypi_is_the_readme_without_what_leads_nowhere_there(metadata, project):
    """Links to pages and pictures of the repository would lead to places on PyPI that are not there."""
    description, readme = metadata.get_payload(), (project / "README.md").read_text()
    assert re.findall(r"^#+ .*", description, flags=re.MULTILINE) == re.findall(r"^#+ .*", readme, flags=re.MULTILINE)
    assert not re.search(r"<picture|<img|PyPI again|\]\((?!https://)", description)
    assert "exactly-once for database writes (" in description


def of(metadata: Message, beginning: str) -> list[str]:
    """Return the rest of all classifiers that begin so."""
    known = metadata.get_all("Classifier", [])
    return [classifier.removeprefix(beginning) for classifier in known if classifier.startswith(beginning)]


def test_every_extra_that_the_documentation_names_is_there(metadata, project):
    pages = [project / "README.md", project / "CHANGELOG.md", *(project / "docs").rglob("*.md")]
    named = {
        extra
        for page in pages
        for extras in re.findall(r"pgqueue\[([a-z,]+)\]", page.read_text())
        for extra in extras.split(",")
    }
    assert {"binary", "embedded"} <= named <= set(metadata.get_all("Provides-Extra"))


@pytest.fixture
def site(tmp_path, outside):
    """An empty project with an app that has a task."""
    outside.run("-m", "django", "startproject", "mysite", str(tmp_path), cwd=tmp_path)
    outside.run("manage.py", "startapp", "shop", cwd=tmp_path)
    with (tmp_path / "mysite" / "settings.py").open("a") as file:
        file.write(SETTINGS)
    (tmp_path / "shop" / "tasks.py").write_text(TASKS)
    return tmp_path


FIRST_STEPS = """
from django.core.management import call_command
from shop.tasks import pack

call_command("check")
call_command("migrate", verbosity=0)
call_command("makemigrations", check_changes=True, dry_run=True)
pack.enqueue(7)
"""


def test_wheel_works_in_an_empty_project(site, outside, libpq):
    def manage(*arguments):
        return outside.run("manage.py", *arguments, cwd=site, **libpq)

    said = manage("shell", "-c", FIRST_STEPS)
    assert "no issues" in said
    assert "No changes" in said
    manage("pgqueue_worker", "--drain")
    order, _, file = (site / "packed.txt").read_text().partition(" by ")
    assert order == "order 7"
    assert Path(file).is_relative_to(outside.python.parent.parent)
