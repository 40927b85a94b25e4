"""Worker processes that are forked, each test in a Python without other threads."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from django_pgqueue.worker import fork_server
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is forked")

BEGIN = """
import atexit, logging, multiprocessing, os, signal, socket, sys, tempfile, threading, time
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
logging.basicConfig(format="%(message)s", stream=sys.stdout, level="INFO")
from django_pgqueue.worker.fork_server import SPAWN, ForkedProcess, process_maker, why_not_fork

"""


@pytest.fixture
def say(project):
    """Run code to its end; return the lines that it prints."""

    def run(code: str) -> list[str]:
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", BEGIN + code],
            cwd=project,
            env=os.environ | {"PYTHONUNBUFFERED": ""},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout.splitlines()

    return run


def test_process_is_as_one_of_multiprocessing(say):
    """Its arguments come with their descriptors and shared memory; what is left for the exit is done in it."""
    assert say("""
def work(pipe, shared, *, code):
    atexit.register(lambda: os.write(pipe.fileno(), b" at exit"))
    os.write(pipe.fileno(), multiprocessing.current_process().name.encode())
    shared[0] = os.getpid()
    sys.exit(code)

with process_maker(may_fork=True) as make_process:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    shared = multiprocessing.RawArray("q", 1)
    process = make_process(target=work, args=(theirs, shared), kwargs={"code": 7}, name="one")
    process.start()
    theirs.close()
    process.join()
    print(type(process).__name__, process.exitcode, shared[0] == process.pid, os.read(ours.fileno(), 100))
    print(os.read(ours.fileno(), 100), "no copy of the pipe is left in the server")
""") == ["ForkedProcess 7 True b'one at exit'", "b'' no copy of the pipe is left in the server"]


def test_order_may_be_longer_than_a_message(say):
    """As of a project with a database for each of its many customers."""
    assert say("""
def work(text):
    sys.exit(len(text) == 3_000_000)

with process_maker(may_fork=True) as make_process:
    process = make_process(target=work, args=("x" * 3_000_000,))
    process.start()
    process.join()
    print(type(process).__name__, process.exitcode)
""") == ["ForkedProcess 1"]


def test_process_does_nothing_once_more_that_was_begun_in_the_command(say):
    """Neither print what the project has printed, nor remove its temporary folder, which the others use."""
    assert say("""
print("printed when it was imported")
folder = tempfile.TemporaryDirectory()
with process_maker(may_fork=True) as make_process:
    process = make_process(target=print, args=("printed in the process",))
    process.start()
    process.join()
    print(process.exitcode, os.path.isdir(folder.name))
folder.cleanup()
""") == ["printed when it was imported", "printed in the process", "0 True"]


def test_descriptors_of_a_process_are_not_those_of_programs_that_it_runs(say):
    assert say("""
def work(pipe):
    os.write(pipe.fileno(), str(os.get_inheritable(pipe.fileno())).encode())

ours, theirs = multiprocessing.Pipe(duplex=False)
with process_maker(may_fork=True) as make_process:
    make_process(target=work, args=(theirs,)).start()
    print(os.read(ours.fileno(), 100))
""") == ["b'False'"]


def test_signal_while_the_server_is_made_reaches_the_command_alone(say):
    assert say("""
def stop(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, stop)
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    with process_maker(may_fork=True) as make_process:
        process = make_process(target=print, args=("at work",))
        process.start()
        process.join()
        print(process.exitcode)
except KeyboardInterrupt:
    print("this is the command a second time")
""") == ["at work", "0"]


def test_server_may_be_waited_for_by_other_code(say):
    """Or by the system: the parent of a command may have set it to ignore children that end."""
    assert say("""
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
with process_maker(may_fork=True) as make_process:
    process = make_process(target=print)
    process.start()
    process.join()
    print(process.exitcode)
    server = make_process.__self__._pid
    os.kill(server, signal.SIGKILL)
    try:
        os.waitpid(server, 0)
    except ChildProcessError:
        print(type(make_process(target=print)).__name__)
""")[-3:] == [
        "0",
        "The process that forks worker processes has ended: they are started afresh from now on",
        "SpawnProcess",
    ]


def test_exit_codes_are_told_of_all_processes(say):
    assert say("""
def end(code):
    if code < 0:
        os.kill(os.getpid(), -code)
    if code == 1:
        sys.stderr = sys.stdout
        raise RuntimeError("told")
    os._exit(code)

with process_maker(may_fork=True) as make_process:
    processes = [make_process(target=end, args=(code,)) for code in (0, 3, -9, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print([process.exitcode for process in processes])
    sleeper = make_process(target=time.sleep, args=(600,))
    sleeper.start()
    sleeper.kill()
    sleeper.join()
    print(sleeper.exitcode)
""")[-2:] == ["[0, 3, -9, 1]", "-9"]


def test_processes_learn_that_their_command_is_gone_and_so_does_the_server(say):
    assert say("""
def wait(pipe):
    multiprocessing.parent_process().join()
    os.write(pipe.fileno(), b"gone")

ours, theirs = multiprocessing.Pipe(duplex=False)
command = os.fork()
if not command:
    with process_maker(may_fork=True) as make_process:
        make_process(target=wait, args=(theirs,)).start()
        os.kill(os.getpid(), signal.SIGKILL)
theirs.close()
os.waitpid(command, 0)
print(os.read(ours.fileno(), 100), os.read(ours.fileno(), 100))
""") == ["b'gone' b''"]


def test_processes_are_started_afresh_once_the_server_was_killed(say):
    """Those that it has forked live on, and their ends are seen."""
    assert say("""
with process_maker(may_fork=True) as make_process:
    sleeper = make_process(target=time.sleep, args=(600,))
    sleeper.start()
    server = make_process.__self__._pid
    os.kill(server, signal.SIGKILL)
    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
    print(type(make_process(target=print)).__name__, sleeper.is_alive())
    sleeper.kill()
    sleeper.join()
    print(sleeper.exitcode, sleeper.is_alive())
""") == [
        "The process that forks worker processes has ended: they are started afresh from now on",
        "SpawnProcess True",
        "255 False",
    ]


def test_project_that_starts_threads_or_opens_connections_is_not_forked(say):
    """A copy would lack the thread and share the connection; a socket of datagrams, as of syslog, may be shared."""
    assert say("""
print(why_not_fork())
telling = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
print(why_not_fork())
left, right = socket.socketpair()
print(why_not_fork())
left.close()
right.close()
ended = threading.Event()
thread = threading.Thread(target=ended.wait)
thread.start()
with process_maker(may_fork=True) as make_process:
    print(make_process == SPAWN.Process)
ended.set()
thread.join()
telling.close()
with process_maker(may_fork=False) as make_process:
    print(make_process == SPAWN.Process)
""") == [
        "None",
        "None",
        "the project has opened a connection when it was imported",
        "Worker processes are not forked, but started afresh: the project has started 1 thread(s) when it was imported",
        "True",
        "True",
    ]


def test_databases_of_a_command_may_order_their_processes_at_once(say):
    """Each has a thread of its own for that, and an order is more than one message."""
    assert say("""
def work(pipe, text):
    os.write(pipe.fileno(), b"%d " % len(text))

def start(make_process, theirs):
    for _ in range(8):
        process = make_process(target=work, args=(theirs, "x" * 100_000))
        processes.append(process)
        process.start()

processes = []
with process_maker(may_fork=True) as make_process:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    threads = [threading.Thread(target=start, args=(make_process, theirs)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        process.join()
    print({process.exitcode for process in processes}, len(os.read(ours.fileno(), 10_000).split()))
""") == ["{0} 32"]


def test_process_that_cannot_be_forked_is_an_error_in_the_command(monkeypatch):
    def refuse():
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(fork_server.os, "fork", refuse)
    server = fork_server.Server(SimpleNamespace(), -1)
    forks = SimpleNamespace(fork=lambda order, fds: server._fork(order, *map(fork_server.os.dup, fds)))
    try:
        with pytest.raises(OSError, match=r"The process cannot be forked\."):
            fork_server.ForkedProcess(forks, target=print).start()
    finally:
        fork_server.os.close(server._ended)
        fork_server.os.close(server._note)
