"""How others learn of a command's health: by pages, from a file, and systemd by a protocol of its own."""

import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from django_pgqueue.runtime.pages import Answer, Headers, Page
from django_pgqueue.runtime.plan import Plan
from django_pgqueue.runtime.verdict import Verdict

logger = logging.getLogger("django_pgqueue.worker")

FRESH_SECONDS = 10.0
"""A verdict is made each second. One that is older says only that nobody judges any more."""


class Probes:
    """Passes verdicts on to whoever has been named in the plan or the environment."""

    def __init__(self, plan: Plan) -> None:
        self._file = Path(plan.health_file) if plan.health_file else None
        self._systemd = os.environ.get("NOTIFY_SOCKET", "")
        self._is_started = False  # as systemd knows
        self._verdict: Verdict | None = None
        self._told_at = 0.0
        self._is_asked = bool(plan.health_port)
        self.pages: dict[str, Page] = {"/live": self._live, "/ready": self._ready}

    @property
    def are_wanted(self) -> bool:
        """Whether anybody wants to know."""
        return bool(self._is_asked or self._file or self._systemd)

    def tell(self, verdict: Verdict, is_at_work: bool) -> None:  # noqa: FBT001 - the two halves of what is told
        """Take note of a verdict and pass it on; systemd first, as a disk that is full need not be its end."""
        self._verdict, self._told_at = verdict, time.monotonic()
        if self._systemd:
            self._tell_systemd(verdict, is_at_work=is_at_work)
        if self._file:
            write(self._file, verdict)

    def stopping(self) -> None:
        """Say that the command is about to end on purpose."""
        if self._systemd:
            notify(self._systemd, "STOPPING=1")

    def close(self) -> None:
        """Say nothing more."""
        if self._file:
            self._file.unlink(missing_ok=True)

    def _live(self, _: Headers) -> Answer:
        """Answer whether the command is alive."""
        return self._answer(lambda verdict: verdict.dead)

    def _ready(self, _: Headers) -> Answer:
        """Answer whether it does its work."""
        return self._answer(lambda verdict: verdict.unready)

    def _answer(self, problems_of: Callable[[Verdict], tuple[str, ...]]) -> Answer:
        if self._verdict is None or time.monotonic() - self._told_at > FRESH_SECONDS:
            problems: tuple[str, ...] = ("nobody has looked yet" if self._verdict is None else "nobody looks any more",)
        else:
            problems = problems_of(self._verdict)
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return Answer.json({"ok": not problems, "problems": problems}, status)

    def _tell_systemd(self, verdict: Verdict, *, is_at_work: bool) -> None:
        lines = [f"STATUS={'; '.join(verdict.unready) or 'at work'}"]
        if is_at_work and not self._is_started:
            self._is_started = True
            lines.append("READY=1")
        if verdict.is_live:
            lines.append("WATCHDOG=1")
        notify(self._systemd, "\n".join(lines))


def write(path: Path, verdict: Verdict) -> None:
    """Rewrite the file, as a whole, where the command is alive; remove it where it is not."""
    if not verdict.is_live:
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f"{path.name}.{os.getpid()}")
    report = {"live": verdict.is_live, "ready": verdict.is_ready, "problems": verdict.unready}
    new.unlink(missing_ok=True)  # of a command with this pid that was killed; or a link that somebody has laid
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w") as file:
        file.write(json.dumps(report) + "\n")
    new.replace(path)


def notify(address: str, message: str) -> None:
    """Send one message to systemd; one that does not arrive is missed by nobody but it.

    Source: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        sender.send(message.encode())
