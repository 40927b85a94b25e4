"""The process that has imported what ``manage.py`` commands need, and is forked for each of them.

Run by ``prestarted.py`` with the descriptor of its orders; ends when they end. A fork evaluates the settings of its
environment. Where they differ from the template's in more than a value that is only ever read when it is needed, it
becomes a fresh interpreter. So does a command whose settings are another module.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent.parent
MANAGE = PROJECT / "tests" / "manage.py"

MODULES = (
    "asyncio",
    "django.db.backends.postgresql.base",
    "django_pgqueue.management.commands.pgqueue_worker",
    "tests.urls",
)
"""What a worker imports after django.setup()."""

READ_WHEN_NEEDED = {"DATABASES", "PGQUEUE"}

PATIENCE_SECONDS = 60.0
"""In place of the five or ten that the end of a command, or one request, may take."""

NUMBER = struct.Struct("i")
MOST_BYTES = 2**20


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    sys.path[0] = str(PROJECT)
    load()
    order = serve(orders)
    if order is not None:  # in a fork
        become(order)


def load() -> None:
    import django

    django.setup()
    for name in MODULES:
        importlib.import_module(name)
    be_patient()
    gc.collect()
    gc.freeze()


def be_patient() -> None:
    """Let commands end in order, and answer, on a machine that stands still for some seconds meanwhile."""
    from django_pgqueue.worker import http, maintenance, supervisor

    supervisor.FAREWELL_SECONDS = maintenance.FINISH_SECONDS = http.LONGEST_SECONDS = PATIENCE_SECONDS


def serve(orders: socket.socket) -> dict[str, Any] | None:
    """Fork for each order until they end; return it in the fork."""
    ended, note = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(note, False)
    signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([orders, ended], [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(ended, 4096)
            reap(running)
        if orders in ready:
            text, fds = receive(orders)
            if not text:
                end(running)
                return None
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                take(fds[1:])
                return json.loads(text)
            told, *streams = fds
            for stream in streams:
                os.close(stream)
            running[pid] = socket.socket(fileno=told)
            tell(running[pid], pid)


def receive(source: socket.socket) -> tuple[bytes, list[int]]:
    """Return a message and the descriptors that came with it; an empty one at the end."""
    text, fds, _, _ = socket.recv_fds(source, MOST_BYTES, 64)
    return text, list(fds)


def tell(whom: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # it is not asked any more
        whom.send(NUMBER.pack(number))


def reap(running: dict[int, socket.socket]) -> None:
    """Tell of those that have ended how they did."""
    for pid in list(running):
        known, status = os.waitpid(pid, os.WNOHANG)
        if known:
            with running.pop(pid) as whom:
                tell(whom, status)


def end(running: dict[int, socket.socket]) -> None:
    """Kill what is left, with its session where it has one."""
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)


def take(streams: list[int]) -> None:
    """Make these the standard streams, and close all else."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for number in map(int, os.listdir("/proc/self/fd")):  # not up to the limit, which may be a thousand million
        if number > 2:
            with contextlib.suppress(OSError):  # the one of this list
                os.close(number)


def become(order: dict[str, Any]) -> None:
    """Go on as the command."""
    if order["session"]:
        os.setsid()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    words = order["words"]
    if not renew_settings():
        os.execve(sys.executable, [sys.executable, str(MANAGE), *words], dict(os.environ))
    renew_apps()
    sys.argv = [str(MANAGE), *words]
    sys.path[0] = str(MANAGE.parent)
    runpy.run_path(str(MANAGE), run_name="__main__")


def renew_settings() -> bool:
    """Evaluate the settings as a new process would; return whether what has been imported is still right."""
    from django.conf import Settings, settings
    from django.db import connections

    name = settings.SETTINGS_MODULE
    if os.environ.get("DJANGO_SETTINGS_MODULE", name) != name:
        return False
    old = values_of(settings._wrapped)
    del sys.modules[name]
    fresh = Settings(name)
    if values_of(fresh) != old:
        return False
    settings._wrapped = fresh
    vars(connections).clear()
    connections.__init__()  # none has been opened
    list(connections)  # which fills the fresh settings up, as django.setup() has done with the old
    return True


def values_of(settings: Any) -> dict[str, Any]:
    """Return the settings that may have been read by now."""
    return {name: getattr(settings, name) for name in dir(settings) if name.isupper() and name not in READ_WHEN_NEEDED}


def renew_apps() -> None:
    """Do what depends on the environment when apps are made ready.

    The command calls django.setup() again, which would configure logging again, without the handlers that apps add.
    """
    from django.apps import apps
    from django.utils import log

    apps.get_app_config("app").ready()
    log.configure_logging = lambda *_: None


if __name__ == "__main__":
    main()
