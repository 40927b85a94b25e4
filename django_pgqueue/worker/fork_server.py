"""Start worker processes by fork, from a copy of the command that has imported the project and has nothing open.

The command makes the copy, the server, before it has a thread or a connection, and the server does nothing but fork
again. So a process inherits no lock, connection or thread, is at work within milliseconds, and shares the memory of
the imported code. Where that is not known to be safe, each process is a fresh interpreter ("spawn").
Source: multiprocessing's "forkserver", whose server is a fresh interpreter and imports everything once more.
https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
"""

import array
import atexit
import contextlib
import gc
import logging
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing import popen_fork, util
from multiprocessing.connection import wait
from multiprocessing.context import set_spawning_popen
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NoReturn

from django.db import connections

# What a worker process needs, so that it is there before the first one is forked.
from django_pgqueue.worker import cleanup, consumer, metrics, slots  # noqa: F401
from django_pgqueue.worker.processes import SPAWN, MakeProcess, blocked

logger = logging.getLogger("django_pgqueue.worker")

NUMBER = struct.Struct("i")
PART_BYTES = 2**14  # of an order, in one message
ORDER_FDS = 64  # more than an order has
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)  # to the command

LOST = 255  # exit code of a process whose own is not known: the server has ended before it


@contextlib.contextmanager
def process_maker(*, may_fork: bool) -> Iterator[MakeProcess]:
    """Yield what makes the processes of a command; closes this thread's connections. Called before there are threads.

    Args:
        may_fork: fork them where that is safe; otherwise each is a fresh interpreter.
    """
    connections.close_all()
    close_pools()
    obstacle = why_not_fork() if may_fork else ""
    if obstacle is not None:
        if obstacle:
            logger.info("Worker processes are not forked, but started afresh: %s", obstacle)
        yield SPAWN.Process
        return
    server = ForkServer()
    try:
        yield server.make_process
    finally:
        server.close()


def close_pools() -> None:
    """Close the pools of connections that the settings ask for: they have threads."""
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict["OPTIONS"].get("pool") and hasattr(connection, "close_pool"):
            connection.close_pool()


def why_not_fork() -> str | None:
    """Return what a copy of this process would lack, or share though it must not; None: it may be forked."""
    if sys.platform != "linux":
        return "this system is not Linux"
    if (threads := len([*Path("/proc/self/task").iterdir()]) - 1) > 0:
        return f"the project has started {threads} thread(s) when it was imported"
    if any(map(is_own_stream, list(Path("/proc/self/fd").iterdir()))):
        return "the project has opened a connection when it was imported"
    return None


def is_own_stream(descriptor: Path) -> bool:
    """Whether a descriptor is a socket with a stream of bytes that this process has opened, and not its parent."""
    fd = int(descriptor.name)
    try:
        if not str(descriptor.readlink()).startswith("socket:") or os.get_inheritable(fd):
            return False
        with socket.socket(fileno=os.dup(fd)) as copy:
            return copy.type != socket.SOCK_DGRAM  # as to syslog: each message is whole
    except OSError:  # as of the folder that was listed
        return False


class ForkServer:
    """The command's end of a server, which ends when this is closed, or the command is gone."""

    def __init__(self) -> None:
        self._alive_read, self._alive = os.pipe()  # all processes see by the close of this end that the command is gone
        self._orders, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ordering = threading.Lock()  # the databases of a command order their processes in a thread each
        self._is_lost = False
        util._flush_std_streams()  # type: ignore[attr-defined]  # noqa: SLF001 - else each process prints it once more
        with blocked(SIGNALS):  # until the server ignores them
            self._pid = os.fork()
            if not self._pid:
                os.close(self._alive)
                self._orders.close()
                serve(orders, self._alive_read)
        orders.close()
        os.close(self._alive_read)

    def make_process(self, **given: Any) -> BaseProcess:
        """Make a process to be forked; a fresh interpreter once the server has been killed."""
        if not self._is_lost and self._has_ended(os.WNOHANG):
            self._is_lost = True
            logger.warning("The process that forks worker processes has ended: they are started afresh from now on")
        return SPAWN.Process(**given) if self._is_lost else ForkedProcess(self, **given)

    def fork(self, order: bytes, fds: Sequence[int]) -> None:
        size = NUMBER.pack(len(order))
        with self._ordering:
            self._orders.sendmsg([size], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            for start in range(0, len(order), PART_BYTES):
                self._orders.send(order[start : start + PART_BYTES])

    def close(self) -> None:
        self._orders.close()
        os.close(self._alive)
        if not self._is_lost:
            self._has_ended()

    def _has_ended(self, flags: int = 0) -> bool:
        try:
            return os.waitpid(self._pid, flags)[0] == self._pid
        except ChildProcessError:  # the system forgets children that end, or other code waited for it
            return True


class ForkedProcess(BaseProcess):
    """As ``multiprocessing.Process``."""

    _start_method = None  # of processes that it starts itself: as is the default

    def __init__(self, server: ForkServer, **given: Any) -> None:
        super().__init__(**given)
        self._server = server

    def _Popen(self, process: BaseProcess) -> "Started":  # noqa: N802 - multiprocessing's name
        return Started(self._server, process)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_server"}


class InheritedFd:
    """A descriptor on its way to a new process, as multiprocessing pickles it."""

    of_this_process: Sequence[int] = ()

    def __init__(self, place: int) -> None:
        self._place = place

    def detach(self) -> int:
        return self.of_this_process[self._place]


class Started(popen_fork.Popen):
    """A process of the server's, whose pid and exit code come through a pipe; as multiprocessing wants it."""

    method = "fork_server"
    DupFd = InheritedFd

    def __init__(self, server: ForkServer, process: BaseProcess) -> None:
        self._server = server
        self._fds: list[int] = []
        self._one_at_a_time = threading.Lock()
        super().__init__(process)

    def duplicate_for_child(self, fd: int) -> int:
        self._fds.append(fd)
        return len(self._fds) - 1

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        with self._one_at_a_time:
            if self.returncode is None and wait([self.sentinel], 0 if flag == os.WNOHANG else None):
                code = os.read(self.sentinel, NUMBER.size)
                self.returncode = NUMBER.unpack(code)[0] if code else LOST
        return self.returncode

    def _launch(self, process: BaseProcess) -> None:
        set_spawning_popen(self)  # type: ignore[arg-type]  # pickling asks it for descriptors, as it asks others
        try:
            order = bytes(ForkingPickler.dumps(process))
        finally:
            set_spawning_popen(None)
        self.sentinel, told = os.pipe()
        self.finalizer = util.Finalize(self, os.close, (self.sentinel,))
        try:
            self._server.fork(order, [told, *self._fds])
        finally:
            os.close(told)
        if not (pid := os.read(self.sentinel, NUMBER.size)):
            raise OSError("The process cannot be forked.")
        self.pid = NUMBER.unpack(pid)[0]


# In the server


def serve(orders: socket.socket, alive: int) -> NoReturn:
    """Be the server until the orders end."""
    try:
        Server(orders, alive).run()
    finally:  # in no case does anything go on here as if this were the command
        os._exit(0)


class Server:
    def __init__(self, orders: socket.socket, alive: int) -> None:
        self._orders = orders
        self._alive = alive
        self._running: dict[int, int] = {}  # by pid: where to send the exit code
        self._ended, self._note = os.pipe()  # readable when a process has ended

    def run(self) -> None:
        name_process("pgqueue-fork")
        gc.freeze()  # a collection would write to memory that is shared, and so copy it
        for one in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # noqa: SLF001
            one.atexit = False  # folders and files to remove when the command ends
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a signal to the whole group is the command's business
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for end in (self._ended, self._note):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._note, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            wanted: list[Any] = [self._orders, self._ended]
            ready, _, _ = select.select(wanted, [], [])
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._tell_ends()
            if self._orders in ready:
                size, fds, _, _ = socket.recv_fds(self._orders, NUMBER.size, ORDER_FDS)
                if not size:
                    return
                for fd in fds:
                    os.set_inheritable(fd, False)
                self._fork(self._receive(*NUMBER.unpack(size)), *fds)

    def _receive(self, size: int) -> bytes:
        order = b""
        while len(order) < size:
            part = self._orders.recv(PART_BYTES)
            if not part:
                raise EOFError
            order += part
        return order

    def _fork(self, order: bytes, told: int, *fds: int) -> None:
        try:
            pid = os.fork()
        except OSError:  # as where memory is short: the end of the pipe says so
            pid = None
        if pid == 0:
            self._let_go()
            become(order, fds, self._alive)
        for fd in fds:
            os.close(fd)
        if pid is None:
            os.close(told)
        else:
            self._running[pid] = told
            os.write(told, NUMBER.pack(pid))

    def _let_go(self) -> None:
        """Close the server's descriptors in a new process. Its own pipe stays open: that ends when the process does."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._orders.close()
        for fd in (self._ended, self._note, *self._running.values()):
            os.close(fd)

    def _tell_ends(self) -> None:
        for pid in list(self._running):
            known, status = os.waitpid(pid, os.WNOHANG)
            if known:
                told = self._running.pop(pid)
                with contextlib.suppress(BrokenPipeError):  # SIGPIPE is ignored, as always in Python
                    os.write(told, NUMBER.pack(os.waitstatus_to_exitcode(status)))
                os.close(told)


# In a new process


def become(order: bytes, fds: Sequence[int], alive: int) -> NoReturn:
    """Be the process that was ordered, to its end, and run the functions that are registered for the exit."""
    code = 1
    try:
        InheritedFd.of_this_process = fds
        process = pickle.loads(order)  # noqa: S301 - of the command's own
        name_process(process.name)
        code = process._bootstrap(parent_sentinel=alive)  # noqa: SLF001 - what each start method calls
    finally:
        try:
            atexit._run_exitfuncs()  # noqa: SLF001 - as in multiprocessing.popen_fork
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def name_process(name: str) -> None:
    """Set the name in ``ps`` and ``top``: the command line is that of the command."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
