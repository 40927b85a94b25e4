"""Trace of events in all processes, one JSON object a line, in the file that the environment names."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from tests.conformance.compat import FRAMEWORK, SIGNALS

VARIABLE = "CONFORMANCE_TRACE"


def note(**entry: Any) -> None:
    """Write one line at once, so that those of other processes do not get into it."""
    if path := os.environ.get(VARIABLE):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, json.dumps({"pid": os.getpid(), **entry}).encode() + b"\n")
        finally:
            os.close(file)


class Trace:
    """The notes of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, **wanted: Any) -> list[dict[str, Any]]:
        """Return the entries that have these values."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [entry for entry in map(json.loads, lines) if wanted.items() <= entry.items()]

    def labels(self) -> list[str]:
        """Return what tasks have said, in the order in which they did."""
        return [entry["label"] for entry in self.read(what="task")]


def connect() -> None:
    """Note all signals, to receivers of both kinds, and what the framework logs; once, if apps are loaded again."""
    for name, signal in SIGNALS.items():
        signal.connect(_receiver(name), weak=False, dispatch_uid=f"note {name}")
        signal.connect(_async_receiver(name), weak=False, dispatch_uid=f"note {name} async")
    logger = logging.getLogger(FRAMEWORK)
    logger.setLevel(logging.DEBUG)
    if not any(isinstance(handler, Handler) for handler in logger.handlers):
        logger.addHandler(Handler())


def _describe(name: str, sender: Any, task_result: Any) -> dict[str, Any]:
    raised = sys.exc_info()[0]
    return {
        "signal": name,
        "id": task_result.id,
        "sender": f"{sender.__module__}.{sender.__qualname__}" if isinstance(sender, type) else repr(sender),
        "status": str(task_result.status),
        "attempts": task_result.attempts,
        "raised": raised and raised.__name__,
    }


def _receiver(name: str):
    def receive(sender, task_result, **_):
        note(what="signal", **_describe(name, sender, task_result))
        if task_result.kwargs.get("receiver_raises_at") == name:
            raise RuntimeError(f"a receiver of {name}")

    return receive


def _async_receiver(name: str):
    async def receive(sender, task_result, **_):
        note(what="async signal", **_describe(name, sender, task_result))

    return receive


class Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        trace = "".join(logging.Formatter().formatException(record.exc_info)) if record.exc_info else None
        note(what="log", level=record.levelname, message=record.getMessage(), traceback=trace)
