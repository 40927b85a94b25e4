"""The groups that the tests are run in, and what the end of a run says."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cores import cores
from tests.support.groups import parse, split
from tests.support.summary import ENVIRONMENT, repeating

CONFTEST = """
from tests.support import groups, summary

def pytest_addoption(parser):
    groups.pytest_addoption(parser)

def pytest_configure(config):
    config.pluginmanager.register(groups.Groups(config))
    config.pluginmanager.register(summary)
"""

MODULE = """
import os
import pytest

@pytest.fixture(autouse=True)
def told(request):
    with open(f"ran-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.txt", "a") as file:
        print(request.node.nodeid, file=file)

@pytest.mark.parametrize("number", range(4))
def test_passes(number):
    pass
"""

SKIPS = """
@pytest.mark.skip(reason="needs a thing; to run it: apt-get install thing")
def test_skips():
    pass
"""

FAILS = """
def test_fails():
    assert not "well"
"""


@pytest.fixture
def suite(tmp_path: Path, project: Path):
    """Run pytest on five modules of a project of its own; return what it says, and the order of each process."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number, more in enumerate(["", "", "", SKIPS, FAILS], start=1):
        (tmp_path / f"test_{number}.py").write_text(MODULE + more)

    def run(*options: str) -> tuple[str, list[list[str]]]:
        without = [
            f"-pno:{plugin}" for plugin in ("randomly", "cacheprovider", "django", "hypothesispytest", "pgqueue")
        ]
        command = [sys.executable, "-m", "pytest", "-q", *without]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = {name: value for name, value in environment.items() if name not in ENVIRONMENT}
        environment |= {
            "PYTHONPATH": str(project),
            "MADE_WITH": "DJANGO=6.1",
            "TESTS_GIVEN": "",
            "TEST_SERVER_OF": "gw0",
        }
        environment["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path)
        done = subprocess.run(
            [*command, *options], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
        )
        files = sorted(tmp_path.glob("ran-*.txt"))
        ran = [file.read_text().splitlines() for file in files]
        for file in files:
            file.unlink()
        return done.stdout + done.stderr, ran

    return run


def test_each_test_runs_once_in_the_same_group_each_time(suite):
    said, first = suite("-n", "2", "--dist", "each")
    assert "1 failed, 20 passed, 1 skipped" in said
    assert len(first) == 2
    assert len({*first[0], *first[1]}) == len(first[0]) + len(first[1]) == 21
    assert re.search(r"^Skipped 1: needs a thing; to run it: apt-get install thing$", said, re.MULTILINE)
    [group] = re.findall(r"^Repeat with: make pytest DJANGO=6.1 GROUP=(\d/2)$", said, re.MULTILINE)
    assert suite("--group", group)[1] == [first[int(group[0]) - 1]]


def test_seed_makes_other_groups_and_repeats_them(suite):
    seed, parallel = ("-p", "randomly", "--randomly-seed=7"), ("-n", "2", "--dist", "each")
    said, first = suite(*seed, *parallel)
    assert first != suite(*parallel)[1]
    assert "Shuffled with SEED=7" in said
    [group] = re.findall(r"^Repeat with: make pytest DJANGO=6.1 SEED=7 GROUP=(\d/2)$", said, re.MULTILINE)
    assert suite(*seed, "--group", group)[1] == [first[int(group[0]) - 1]]
    for order in first:
        modules = [nodeid.partition("::")[0] for nodeid in order]
        assert len({*modules}) == 1 + sum(one != other for one, other in itertools.pairwise(modules))


def test_server_that_was_given_is_given_again(request, monkeypatch):
    monkeypatch.delenv("TEST_SERVER_OF", raising=False)  # which says that the server is the tests' own
    monkeypatch.setenv("DATABASE_URL", "postgresql:///shop?user=me&port=1")
    failed = pytest.TestReport("tests/test_x.py::test_y", ("tests/test_x.py", 1, "test_y"), {}, "failed", None, "call")
    [command] = repeating(request.config, [failed])
    assert " DATABASE_URL='postgresql:///shop?user=me&port=1' " in command
    monkeypatch.setenv("TEST_SERVER_OF", "gw0")
    assert "DATABASE_URL" not in repeating(request.config, [failed])[0]


def test_no_process_imports_modules_of_another_group(suite, tmp_path):
    for number in range(1, 6):
        module = tmp_path / f"test_{number}.py"
        module.write_text(f"open('imported-{number}.txt', 'a').write('once')\n{module.read_text()}")
    suite("-n", "2", "--dist", "each")
    assert [file.read_text() for file in sorted(tmp_path.glob("imported-*.txt"))] == ["once"] * 5


def test_tests_that_are_not_asked_for_do_not_run(suite):
    assert suite("-k", "skips or fails")[1] == [["test_5.py::test_fails"]]


@pytest.mark.parametrize("wrong", ["3/2", "0/2", "1", "a/b", "1/2/3"])
def test_group_that_cannot_be_is_refused(wrong):
    with pytest.raises(pytest.UsageError, match=f"--group is '{wrong}', and should be like 2/4"):
        parse(wrong)


def test_groups_take_about_the_same_time_and_keep_the_order():
    weights = {f"m{number:02}": 100.0 / number for number in range(1, 60)}
    groups = split(weights, weights, 3)
    assert sorted(itertools.chain(*groups)) == sorted(weights)
    assert all(group == sorted(group) for group in groups)
    loads = [sum(weights[module] for module in group) for group in groups]
    assert max(loads) < 1.2 * min(loads)


def test_module_that_was_never_weighed_has_a_group_too():
    assert sorted(itertools.chain(*split(["new", "known"], {"known": 3.0}, 4))) == ["known", "new"]


def test_modules_that_need_a_browser_share_a_group_as_far_as_its_time_allows():
    others = {f"tests/test_{number}.py": 10.0 for number in range(9)}
    for seconds, most in ((5.0, 1), (12.0, 2), (100.0, 3)):
        weights = others | {f"tests/browser/test_{number}.py": seconds for number in range(3)}
        groups = split(weights, weights, 4)
        assert sorted(itertools.chain(*groups)) == sorted(weights)
        assert sum(any("browser" in module for module in group) for group in groups) == most


def test_there_may_be_more_groups_than_modules():
    assert split(["a"], {}, 3) == [["a"], [], []]


@pytest.mark.parametrize(
    ("files", "there"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000\n"}, 64),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu.max": "9900000 100000\n"}, 64),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
    ids=[
        "none",
        "no limit",
        "one and a half",
        "a fifth",
        "more than there are",
        "version 1, no limit",
        "version 1, two",
    ],
)
def test_container_that_may_use_less_than_the_cores_of_its_machine_has_fewer(tmp_path, monkeypatch, files, there):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores(tmp_path) == there
