"""The same tests in the same order in the same groups each time: one group of whole modules for each pytest process.

``pytest -n 4 --dist each`` gives every process one of four groups; ``--group 2/4`` runs the second of them alone, in
one process. Which modules share a group follows from what ``weights.json`` says that they take, never from how quick a
process was, so a failure that depends on what ran before comes back. With a seed (``make pytest SEED=…``) order and
groups are shuffled, both by that seed.

Which modules there are is read from the folders, so that each process imports those of its own group alone.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import defaultdict
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WEIGHTS = Path(__file__).with_name("weights.json")
"""Seconds that each module takes, as ``make weights`` has last written them: they need not be right, only the same."""

UNKNOWN_SECONDS = 5.0
"""Weight of a module that ``weights.json`` does not list."""

TOGETHER = "tests/browser/"
"""Modules that share a group as far as its time allows: each process that has one of them starts a browser."""

FROM_XDIST = "group"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for one group alone, and for writing the weights."""
    options = parser.getgroup("groups")
    options.addoption("--group", metavar="I/N", help="Run group I of N alone, as one of N processes would.")
    options.addoption("--write-weights", action="store_true", help="Write down what each module has taken.")


class Groups:
    """Chooses the tests of this process; in the process that starts the others, counts them and their time."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._collected = 0
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._elsewhere: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Find out which modules are of other groups."""
        number, count = group_of(self._config)
        if count > 1:
            modules = modules_asked_for(self._config)
            mine = split(modules, read_weights(), count)[number - 1]
            self._elsewhere = with_folders(modules) - with_folders(mine)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Import no module of another group, nor the conftest of a folder of such, but what is asked for by name."""
        return True if name_of(self._config, collection_path) in self._elsewhere else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """Keep the tests of this process' group, modules in one piece: others sort them by what they do to databases.

        Shuffled is what a seed has shuffled; else tests stand as in their files.
        """
        as_written = list(items)
        yield
        if seed_of(self._config) is None:
            chosen = set(items)  # by -k and the like
            items[:] = [item for item in as_written if item in chosen]
        modules = defaultdict(list)
        for item in items:
            modules[module_of(item.nodeid)].append(item)
        items[:] = [item for module in modules if module not in self._elsewhere for item in modules[module]]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node) -> None:
        """Tell a process its group."""
        if self._config.getoption("dist") == "each":
            node.workerinput[FROM_XDIST] = group_of_node(self._config, node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Let progress be told in per cent of all groups together; each is announced as if it were all."""
        self._collected += len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the time of each module."""
        if self._collected:
            self._config.pluginmanager.get_plugin("session").testscollected = self._collected
        self._seconds[module_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the weights, where that is asked for."""
        if self._config.getoption("write_weights") and not hasattr(self._config, "workerinput"):
            taken = {module: round(seconds, 1) for module, seconds in sorted(self._seconds.items())}
            WEIGHTS.write_text(json.dumps(taken, indent=0) + "\n")


def seed_of(config: pytest.Config) -> int | None:
    """Return the seed of this run, None where it is not shuffled."""
    return config.getoption("randomly_seed", None)


def group_of(config: pytest.Config) -> tuple[int, int]:
    """Return which group of how many this process runs, counted from 1; 1 of 1 where it runs all."""
    workerinput = getattr(config, "workerinput", {})
    return parse(workerinput.get(FROM_XDIST) or config.getoption("group") or "1/1")


def group_of_node(config: pytest.Config, node: Any) -> str:
    """Return the group of a process of xdist, as ``--group`` takes it."""
    return f"{int(node.gateway.id.removeprefix('gw')) + 1}/{config.getoption('numprocesses')}"


def parse(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)) or int(match[1]) > int(match[2]):
        raise pytest.UsageError(f"--group is {text!r}, and should be like 2/4: which group, of how many.")
    return int(match[1]), int(match[2])


def modules_asked_for(config: pytest.Config) -> list[str]:
    """Return the modules of tests in the folders and files that pytest was given, shuffled where there is a seed."""
    given = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    found = dict.fromkeys(name_of(config, path) for start in given for path in modules_below(start, config))
    modules = list(found)
    if (seed := seed_of(config)) is not None:
        random.Random(seed).shuffle(modules)
    return modules


def modules_below(path: Path, config: pytest.Config) -> Iterator[Path]:
    """Give the modules in a folder, but those that pytest is to ignore; or that module itself."""
    if path.is_file():
        yield path
        return
    for child in sorted(path.iterdir()):
        is_wanted = child.is_dir() or any(child.match(pattern) for pattern in config.getini("python_files"))
        if is_wanted and not config.hook.pytest_ignore_collect(collection_path=child, config=config):
            yield from modules_below(child, config)


def with_folders(modules: Iterable[str]) -> set[str]:
    return {str(path) for module in modules for path in (PurePath(module), *PurePath(module).parents)}


def name_of(config: pytest.Config, path: Path) -> str:
    return path.relative_to(config.rootpath).as_posix() if path.is_relative_to(config.rootpath) else path.as_posix()


def module_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def read_weights() -> dict[str, float]:
    return json.loads(WEIGHTS.read_text())


def split(modules: Iterable[str], weights: dict[str, float], count: int) -> list[list[str]]:
    """Spread modules over groups that take about the same time; in each they keep the order in which they are given.

    The heaviest are placed first, each where least is, which leaves the light ones to level the groups. Those of about
    the same weight are placed in their given order: another order makes other groups.
    """
    order = {module: place for place, module in enumerate(modules)}
    seconds = {module: weights.get(module, UNKNOWN_SECONDS) for module in order}
    groups: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    bundles = {bundle: sum(seconds[module] for module in bundle) for bundle in bundled(seconds, count)}
    for bundle in sorted(bundles, key=lambda bundle: (-round(math.log2(bundles[bundle] + 0.1)), order[bundle[0]])):
        lightest = loads.index(min(loads))
        groups[lightest].extend(bundle)
        loads[lightest] += bundles[bundle]
    return [sorted(group, key=order.__getitem__) for group in groups]


def bundled(seconds: dict[str, float], count: int) -> list[tuple[str, ...]]:
    """Return the modules, each alone; those that go together in bundles, none above the time of a group."""
    share = sum(seconds.values()) / count
    bundles: list[list[str]] = []
    together: list[str] = []
    for module in seconds:
        if not module.startswith(TOGETHER):
            bundles.append([module])
        elif together and sum(seconds[one] for one in (*together, module)) <= share:
            together.append(module)
        else:
            together = [module]
            bundles.append(together)
    return [tuple(bundle) for bundle in bundles]
