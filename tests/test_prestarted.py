"""Commands of tests that are forked off a template look to their test as if they had been started."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support import prestarted
from tests.support.prestarted import MANAGE, Popen, run
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.workers import database_url, eventually, parent_of

pytestmark = pytest.mark.skipif(not prestarted.IS_POSSIBLE, reason="elsewhere they are started as ever")

SHELL = ("shell", "-v0", "-c")
WHAT = """
import gc, json, os, random, signal, sys, threading, multiprocessing
from django.conf import settings
from django.db import connections
print(json.dumps({
    "argv": sys.argv,
    "main": sys.modules["__main__"].__file__,
    "path": sys.path,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "settings": repr(sorted((name, getattr(settings, name)) for name in dir(settings)
                            if name.isupper() and name != "DRIVER")),
    "name": str(connections["default"].settings_dict),
    "handlers": [str(signal.getsignal(number)) for number in signal.valid_signals()],
    "mask": str(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": [thread.name for thread in threading.enumerate()],
    "process": [multiprocessing.current_process().name, str(multiprocessing.parent_process())],
    "fds": sorted(os.listdir("/proc/self/fd")),
    "streams": [sys.stdout.encoding, sys.stdout.line_buffering, sys.stderr.encoding, sys.stderr.line_buffering],
    "flags": str(sys.flags),
    "gc": [gc.isenabled(), gc.get_threshold()],
    "own": os.getsid(0) == os.getpid(),
}))
"""


@pytest.fixture
def environment(db) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": database_url(), "LEASE_SECONDS": "7"}


def test_process_is_as_one_that_was_started(environment):
    forked = run([*SHELL, WHAT], env=environment)
    command = [sys.executable, str(MANAGE), *SHELL, WHAT]
    started = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    assert json.loads(forked.stdout) == json.loads(started.stdout)
    assert forked.stderr == started.stderr
    assert "'LEASE_SECONDS': 7" in forked.stdout


def test_two_processes_do_not_draw_the_same_numbers(environment):
    lines = [*SHELL, "import random, uuid, secrets; print(random.random(), uuid.uuid4(), secrets.token_hex())"]
    first, second = (run(lines, env=environment).stdout.split() for _ in range(2))
    assert not set(first) & set(second)


@pytest.mark.parametrize(
    ("line", "code"),
    [("pass", 0), ("sys.exit(3)", 3), ("os._exit(4)", 4), ("os.kill(os.getpid(), 9)", -9), ("1 / 0", 1)],
)
def test_end_is_told(environment, line, code):
    assert run([*SHELL, f"import os, sys\n{line}"], env=environment).returncode == code


def test_process_can_be_told_to_end(environment):
    line = "import os, time; print(os.getpid(), os.getsid(0), flush=True); time.sleep(600)"
    options = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with Popen([*SHELL, line], env=environment, **options) as process:
        assert process.is_prestarted
        assert process.stdout.readline().split() == [str(process.pid)] * 2
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM
        assert process.poll() == -signal.SIGTERM


@pytest.mark.parametrize("variable", ["PYTHONHASHSEED", "DJANGO_SETTINGS_MODULE", "OTEL_SDK_DISABLED"])
def test_what_counts_at_the_start_is_heeded(environment, variable):
    with Popen(["check"], env={**environment, variable: "1"}, stderr=subprocess.DEVNULL) as process:
        assert not process.is_prestarted


def test_template_and_commands_end_with_the_process_that_wanted_them(environment):
    """By whatever signal."""
    code = f"""
import os, signal
from tests.support.prestarted import Popen
command = Popen({[*SHELL, "import time; time.sleep(600)"]!r})
print(command.pid, open(f"/proc/{{command.pid}}/stat").read().split()[3], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    for pid in done.stdout.split():
        eventually(lambda pid=pid: parent_of(int(pid)) is None)
