"""The variables of its environment that the Makefile passes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRINT = "environment: ; @$(ANYWHERE); env; umask\n"
INSTALL = "versions: ; @$(call install,soupsieve)\n"
PIP = """#!/bin/sh
case "$*" in *" -c "*) echo "No matching distribution" >&2; exit 1; esac
echo "pip $*"
"""
"""One that cannot have the versions of a file."""

FOR_OTHERS = {
    "DATABASE_URL": "postgresql://production/shop",
    "DJANGO_SETTINGS_MODULE": "shop.settings",
    "FORCE_COLOR": "1",
    "LC_CTYPE": "UTF-8",
    "LC_ALL": "de_DE.UTF-8",
    "NO_COLOR": "1",
    "OTEL_SDK_DISABLED": "true",
    "PGPORT": "6543",
    "PGSERVICE": "shop",
    "PIP_USER": "1",
    "PYTEST_ADDOPTS": "--color=yes",
    "PYTHONWARNINGS": "error",
}
FOR_THESE = {
    "PGQUEUE": "{}",
    "PGSERVER_POSTGRES_VERSION": "16",
    "PIP_INDEX_URL": "https://packages.example.com",
    "SEED": "7",
    "TEST_SERVERS": "postgresql:///a",
    "THROUGH_PGBOUNCER": "1",
    "http_proxy": "http://proxy.example.com",
}


def environment(*words: str, **variables: str) -> dict[str, str]:
    """Return what the commands of the Makefile would see, and their ``umask``."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    told = subprocess.run(
        ["make", "--no-print-directory", "-f", "Makefile", "-f", "-", "environment", *words],
        cwd=ROOT,
        env=inherited | variables,
        input=PRINT,
        capture_output=True,
        text=True,
        check=True,
        umask=0o077,
    ).stdout.splitlines()
    return dict(line.split("=", 1) for line in told[:-1]) | {"umask": told[-1]}


def test_tests_go_without_what_is_set_for_other_programs():
    seen = environment(**FOR_OTHERS, **FOR_THESE, no_proxy="example.com")
    assert {name: seen.get(name) for name in FOR_THESE} == FOR_THESE
    assert {name for name in FOR_OTHERS if seen.get(name) == FOR_OTHERS[name]} == set()
    assert seen["no_proxy"] == "example.com,127.0.0.1,localhost"
    assert int(seen["umask"], 8) == 0o022


def test_what_make_itself_is_given_holds():
    seen = environment("DATABASE_URL=postgresql:///mine", "PGPASSWORD=secret", PGPASSWORD="of the shop")
    assert (seen["DATABASE_URL"], seen["PGPASSWORD"]) == ("postgresql:///mine", "secret")


def test_names_and_values_that_shells_and_libraries_stumble_over_are_left_alone():
    seen = environment(no_proxy="*", **{"PYTEST_A.b": "1"})
    assert seen["no_proxy"] == "*"
    assert seen["umask"], "dash ends with an error where it is to unset a name with a dot"


def commands(target: str, **variables: str) -> str:
    inherited = {"PATH": os.environ["PATH"]}
    make = ["make", "-n", "-o", ".venv/.installed", target]  # as where that is up to date
    return subprocess.run(make, cwd=ROOT, env=inherited | variables, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="others have no C.UTF-8")
def test_demo_starts_its_server_in_a_locale_that_is_there():
    assert "LC_ALL=C.UTF-8 .venv/bin/python example_project/manage.py demo" in commands("demo", LC_CTYPE="UTF-8")


def test_names_that_others_use_too_choose_no_tests():
    told = commands("pytest", GROUP="users", TESTS="all", N="3", QUICK="1")
    assert "-n auto" in told
    assert "users" not in told
    assert " all" not in told


def install(folder: Path, *words: str) -> tuple[int, str]:
    """Return how a ``pip`` ends that has to do without constraints, and what it says."""
    (folder / "pip").write_text(PIP)
    (folder / ".ci").mkdir(exist_ok=True)
    (folder / ".ci" / "constraints.txt").touch()
    make = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "-f", "-", "versions", "PIP=sh pip", *words]
    inherited = {"PATH": os.environ["PATH"]}
    done = subprocess.run(make, cwd=folder, env=inherited, input=INSTALL, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_versions_that_cannot_be_had_give_way_to_the_newest(tmp_path):
    status, said = install(tmp_path)
    assert status == 0
    assert said.splitlines() == [
        "Not all versions of .ci/constraints.txt can be had here: taking the newest ...",
        "pip install soupsieve",
    ]


def test_versions_that_were_asked_for_do_not_give_way(tmp_path):
    assert install(tmp_path, "CONSTRAINTS=.ci/constraints.txt") == (2, "")
    assert install(tmp_path, "CONSTRAINTS=") == (0, "pip install soupsieve\n")
