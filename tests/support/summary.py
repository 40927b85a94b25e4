"""Summary of a run: reasons of skips, and the command that repeats each group that failed."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.support.groups import group_of, group_of_node, seed_of

MADE_WITH = "MADE_WITH"
"""Environment variable with the variables that make was given, as words of its command: PYTHON, DJANGO, VENV."""

TESTS = "TESTS_GIVEN"
"""The same for TESTS alone, as it is."""

ENVIRONMENT = (
    "FOREIGN",
    "PGSERVER_POSTGRES_VERSION",
    "THROUGH_PGBOUNCER",
    "TEST_SERVERS",
    "HYPOTHESIS_PROFILE",
)
"""Variables that change what is tested."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print both, and the seed."""
    stats = terminalreporter.stats
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in stats.get("skipped", ()))
    for line in [f"Skipped {count}: {why}" for why, count in sorted(reasons.items())]:
        terminalreporter.write_line(line)
    for command in repeating(config, [*stats.get("failed", ()), *stats.get("error", ())]):
        terminalreporter.write_line(f"Repeat with: {command}", red=True)
    if (seed := seed_of(config)) is not None:
        terminalreporter.write_line(f"Shuffled with SEED={seed}")


def repeating(config: pytest.Config, failed: Iterable[pytest.TestReport]) -> list[str]:
    """Return the command for each group that had a failure: it runs the same tests before it, in the same order."""
    tests = f"TESTS={shlex.quote(given)}" if (given := os.environ.get(TESTS)) else None
    words = [*_environment(), "make pytest", os.environ.get(MADE_WITH), *_server(), tests, *_seed(config)]
    command = " ".join(filter(None, words))
    return [f"{command} GROUP={group}" for group in sorted({_group(config, report) for report in failed})]


def _group(config: pytest.Config, report: pytest.TestReport) -> str:
    if (node := getattr(report, "node", None)) is not None and config.getoption("dist") == "each":
        return group_of_node(config, node)
    return "/".join(map(str, group_of(config)))


def _seed(config: pytest.Config) -> list[str]:
    return [] if (seed := seed_of(config)) is None else [f"SEED={seed}"]


def _server() -> list[str]:
    # The process that starts the others has started a server too, and says where.
    given = None if "TEST_SERVER_OF" in os.environ else os.environ.get("DATABASE_URL")
    return [f"DATABASE_URL={shlex.quote(given)}"] if given else []


def _environment() -> list[str]:
    return [f"{name}={shlex.quote(os.environ[name])}" for name in ENVIRONMENT if name in os.environ]
