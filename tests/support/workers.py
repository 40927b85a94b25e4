"""Real worker processes for the tests."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from django.db import connection

from tests.support import prestarted
from tests.support.waiting import PATIENCE_SECONDS, eventually

MANAGE = Path(__file__).parent.parent / "manage.py"


LEFT_SECONDS = PATIENCE_SECONDS / 6
"""For how long a session of an earlier test may be idle: it is ending, or that test has left it open."""


class OtherSession(NamedTuple):
    application_name: str
    pid: int
    state: str
    idle_seconds: float
    query: str


def other_sessions(sql: Callable[..., list[tuple]]) -> list[OtherSession]:
    """Return who else has a session on the database, those of earlier tests included that are just ending."""
    sql("SELECT pg_stat_clear_snapshot()")  # else a transaction would be told the same again and again
    found = sql(
        "SELECT application_name, pid, state, "
        "CASE WHEN state = 'active' THEN 0.0 ELSE EXTRACT(epoch FROM clock_timestamp() - state_change)::float8 END, "
        "left(query, 100) FROM pg_stat_activity "
        "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    return [OtherSession._make(row) for row in found]


def until_alone(sql: Callable[..., list[tuple]]) -> None:
    """Wait for the end of the sessions of earlier tests; fail as soon as one of them must have been left open."""
    begun = time.monotonic()
    while sessions := other_sessions(sql):
        waited = time.monotonic() - begun
        left = [session for session in sessions if waited >= LEFT_SECONDS and session.idle_seconds >= LEFT_SECONDS]
        assert not left, f"left open by an earlier test: {left}"
        assert waited < PATIENCE_SECONDS, f"not within {PATIENCE_SECONDS} s, the end of {sessions}"
        time.sleep(0.01)


def database_url() -> str:
    """Return the URL of the test database."""
    url = urlsplit(os.environ["DATABASE_URL"])
    folder = url.path.rsplit("/", 1)[0]
    return urlunsplit(url._replace(path=f"{folder}/{connection.settings_dict['NAME']}"))


class Worker:
    """One ``manage.py pgqueue_worker``, or a worker command of another project, its log in a file.

    Args:
        afresh: start Python for it, and for each of its processes, as people do; for tests of what happens then.
    """

    def __init__(
        self,
        options: Sequence[str],
        environment: dict[str, str],
        *,
        log: Path,
        command: str = "pgqueue_worker",
        afresh: bool = False,
    ) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = prestarted.Popen(
                [command, *options],
                env={**os.environ, "DATABASE_URL": database_url(), **environment},
                afresh=afresh,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.log.read_text()

    def wait_until_ready(self) -> "Worker":
        """Wait for the banner and a heartbeat that names the children's pids."""
        eventually(lambda: "pgqueue worker" in self.text() or self.must_live())
        eventually(lambda: self.children() or self.must_live())
        return self

    def children(self) -> list[int]:
        """Return the pids of the worker processes, as they stand in the table."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pid FROM pgqueue_workers WHERE pid <> 0")
            pids = [pid for (pid,) in cursor.fetchall()]
        return sorted(pid for pid in pids if group_of(pid) == self.process.pid)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP the whole command at once, and wait until it has stopped."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        self.wait_until_frozen()

    def wait_until_frozen(self) -> None:
        """Wait until every thread of the command has stopped: a signal that was sent need not have come yet."""
        eventually(lambda: set(states_of_group(self.process.pid)) == {"T"})

    def thaw(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def kill_group(self) -> None:
        """SIGKILL the whole command at once: supervisor and children."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, *, seconds: float = PATIENCE_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The worker still runs after {seconds} s:\n{self.text()}") from None

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill_group()

    def must_live(self) -> bool:
        assert self.process.poll() is None, f"The worker ended:\n{self.text()}"
        return False


def freeze(pid: int) -> None:
    """SIGSTOP one process, and wait until each of its threads has stopped."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    eventually(lambda: {status[0] for path in threads.glob("*/stat") if (status := status_of(path))} == {"T"})


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None: it has ended, also where no process has asked how."""
    status = status_of(Path(f"/proc/{pid}/stat"))
    return int(status[1]) if status and status[0] not in "ZX" else None


def group_of(pid: int) -> int | None:
    status = status_of(Path(f"/proc/{pid}/stat"))
    return int(status[2]) if status else None


def states_of_group(group: int) -> list[str]:
    """Return the states of all threads of a process group, as T for one that has stopped."""
    threads = [status_of(path) for path in Path("/proc").glob("[0-9]*/task/[0-9]*/stat")]
    return [status[0] for status in threads if status and int(status[2]) == group and status[0] not in "ZX"]


def status_of(path: Path) -> list[str]:
    """Return the fields of a process or thread behind its name: state, parent, group and so on; none if it is gone."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
