"""``manage.py`` commands that begin in a moment: each is forked off a process that has imported all they need.

Starting Python and setting Django up takes half a second of a core, and the tests start hundreds of commands. For those
that are not about starting, :class:`Popen` asks the template of this pytest process (see ``forked.py``), which begins
with the first of them and ends with this process, however that ends. Where the environment has something in it that
counts while modules are imported, the command is started as ever; so it is where ``afresh`` asks for that.
"""

import array
import atexit
import inspect
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE_SECONDS

PROJECT = Path(__file__).parent.parent.parent
MANAGE = PROJECT / "tests" / "manage.py"
TEMPLATE = Path(__file__).with_name("forked.py")

IS_POSSIBLE = sys.platform == "linux"

MAY_DIFFER = frozenset(
    {
        "CONFORMANCE_TRACE",
        "CRASH_POINTS",
        "DATABASE_URL",
        "LEASE_SECONDS",
        "LISTEN_DATABASE_URL",
        "PGQUEUE",
        "PYTEST_CURRENT_TEST",
    }
)
"""Variables that are read after the start: by settings, which are evaluated anew, or each time they are needed."""

ENVIRONMENT = dict(os.environ)
"""As it was before the first test: the template is not to have what one test alone has put into it."""

STATUS = struct.Struct("i")

PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
THEIRS = ("p2cread", "c2pwrite", "errwrite")
"""The ends of a command's standard streams, as subprocess calls them; -1: those of this process."""


class Popen(subprocess.Popen):
    """A ``manage.py`` command with these words; otherwise as its base class, its ``pid`` and ``returncode`` included.

    Its parent is the template, which tells how it ended.
    """

    def __init__(
        self, words: Sequence[str], *, env: Mapping[str, str] | None = None, afresh: bool = False, **options: Any
    ) -> None:
        self._told: socket.socket | None = None
        self._afresh = afresh
        self._words = [str(word) for word in words]
        environment = dict(os.environ if env is None else env)
        super().__init__([sys.executable, str(MANAGE), *self._words], env=environment, **options)

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*given).arguments
        as_ever = self._afresh or asked["preexec_fn"] or asked["pass_fds"]
        template = None if as_ever else template_for(asked["env"])
        if template is None:
            super()._execute_child(*given)
            return
        pipes = [asked[name] for name in PIPES]
        streams = [asked[name] if asked[name] >= 0 else number for number, name in enumerate(THEIRS)]
        order = {
            "words": self._words,
            "environment": asked["env"],
            "folder": str(asked["cwd"] or Path.cwd()),
            "session": asked["start_new_session"],
        }
        self.pid, self._told = template.start(order, streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)

    @property
    def is_prestarted(self) -> bool:
        return self._told is not None

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._told is None:
            return super()._try_wait(wait_flags)
        if wait_flags & os.WNOHANG and not select.select([self._told], [], [], 0)[0]:
            return 0, 0
        status = self._told.recv(STATUS.size)
        self._told.close()
        return self.pid, STATUS.unpack(status)[0] if status else signal.SIGKILL  # which went with its template

    def _internal_poll(self, *args: Any, **options: Any) -> int | None:
        if self._told is None:
            return super()._internal_poll(*args, **options)
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def run(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    afresh: bool = False,
    timeout: float = PATIENCE_SECONDS,
) -> subprocess.CompletedProcess:
    """Run a ``manage.py`` command to its end, its output as text."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Popen(words, env=env, afresh=afresh, **options) as process:
        try:
            said = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, *said)


class Template:
    """The process that commands of this one are forked off."""

    def __init__(self) -> None:
        self.environment = ENVIRONMENT | {"DATABASE_URL": os.environ["DATABASE_URL"]}
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
        self._owner = os.getpid()
        self._one_at_a_time = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(TEMPLATE), str(theirs.fileno())],
                cwd=PROJECT,
                env=self.environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # it ends by the end of its orders, and not by Ctrl-C
            )

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether nothing differs from its own environment but what may."""
        names = self.environment.keys() | environment.keys()
        return all(self.environment.get(name) == environment.get(name) for name in names if name not in MAY_DIFFER)

    def start(self, order: dict[str, Any], streams: list[int]) -> tuple[int, socket.socket]:
        """Return the pid of a new process, and the socket that tells its end."""
        ours, theirs = socket.socketpair()
        with theirs, self._one_at_a_time:
            fds = array.array("i", [theirs.fileno(), *streams])
            self._orders.sendmsg([json.dumps(order).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        pid = ours.recv(STATUS.size)
        assert pid, "The template has ended; what it said stands above."
        return STATUS.unpack(pid)[0], ours

    def is_ours(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def end(self) -> None:
        """End it, and the commands that are left."""
        if self._owner == os.getpid():
            self._orders.close()
            self._process.wait()


def begin() -> None:
    """Start the template with the environment as it is now, which its commands will have too."""
    ENVIRONMENT.clear()
    ENVIRONMENT.update(os.environ)
    template_for(ENVIRONMENT)


_template: Template | None = None
_starting = threading.Lock()


def template_for(environment: Mapping[str, str]) -> Template | None:
    """Return the template where it can be used; start it if it is the first time."""
    global _template  # noqa: PLW0603 - one for each process
    if not IS_POSSIBLE:
        return None
    with _starting:
        if _template is None or not _template.is_ours():
            _template = Template()
            atexit.register(_template.end)
    return _template if _template.suits(environment) else None
