"""Requirements of some tests that a machine may lack: reasons of skips, each with the command that enables them."""

import shutil

import pytest


def reason(why: str, command: str) -> str:
    """Return a reason for ``pytest.skip`` that ends with the command: the end of a run lists each once."""
    return f"{why}; to run it: {command}"


def with_django(version: str) -> str:
    """Return the command that runs the tests on another Django, in an environment of its own."""
    return f"make pytest DJANGO={version} VENV=.venv-{version}"


def with_backend(driver: str) -> str:
    """Return the command that runs the conformance suite on another backend."""
    return f"make pytest TESTS='tests/conformance --backend={driver}'"


CHROMIUM = reason(
    "needs Chromium", "apt-get install chromium-headless-shell, or set CHROMIUM to the path of a Chromium"
)
PGBOUNCER = reason("needs PgBouncer", "apt-get install pgbouncer, or set PGBOUNCER to the path of one")
PGBOUNCER_122 = reason("needs PgBouncer 1.22 or newer", "set PGBOUNCER to the path of one")
PROMTOOL = reason("needs promtool", "apt-get install prometheus")
POSTGRESQL_17 = reason("needs PostgreSQL 17 or newer", "PGSERVER_POSTGRES_VERSION=18 make pytest")
DJANGO_60 = reason("needs Django 6.0, beside which the backport can stand", with_django("6.1"))
DJANGO_61 = reason("needs Django 6.1", with_django("6.1"))
NOT_DJANGO_60 = reason("needs a Django whose @task takes options: not 6.0", with_django("6.1"))
CITUS = reason("needs Citus", "install postgresql-17-citus-13.2, or set CITUS to the folder of a PostgreSQL's tools")
NATS = reason("needs a NATS server", "apt-get install nats-server")
NO_POOLER = reason("needs a connection without a pooler", "make pytest")
LINUX = reason("needs /proc", "make pytest, on Linux")


def promtool() -> str:
    """Return the path of promtool; skip the test where there is none."""
    if (tool := shutil.which("promtool")) is None:
        pytest.skip(PROMTOOL)
    return tool
