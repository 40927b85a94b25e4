"""The end of a worker process."""

import subprocess
import sys

from tests.support.waiting import PATIENCE_SECONDS

LEAVES_A_THREAD = """
import threading
from django_pgqueue.worker import child
child.LINGER_SECONDS = 0.0
threading.Thread(target=threading.Event().wait, name="of a job").start()
threading.Thread(target=child.end_soon, daemon=True).start()
"""


def test_thread_that_a_job_has_left_behind_does_not_keep_its_process(project):
    """The interpreter would wait for it; a process that is to be recycled would never be gone."""
    command = [sys.executable, "-c", LEAVES_A_THREAD]
    ended = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 0
    assert "ends, and threads or processes that its jobs have left behind: of a job" in ended.stderr


LEAVES_A_PROCESS = """
import multiprocessing, os, threading, time
from django_pgqueue.worker import child

def live_as_long_as(parent):
    while os.getppid() == parent:
        time.sleep(0.01)

child.LINGER_SECONDS = 0.0
multiprocessing.get_context("fork").Process(target=live_as_long_as, args=(os.getpid(),), name="of a job").start()
threading.Thread(target=child.end_soon, daemon=True).start()
"""


def test_process_that_a_job_has_left_behind_does_not_keep_its_own(project):
    """What multiprocessing has started is waited for as well."""
    command = [sys.executable, "-c", LEAVES_A_PROCESS]
    ended = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 0
    assert "ends, and threads or processes that its jobs have left behind: of a job" in ended.stderr


AT_WORK_AT_EXIT = """
import atexit, threading
from django_pgqueue.worker import child

child.LINGER_SECONDS = 0.0
is_exiting = threading.Event()
ending = threading.Thread(target=lambda: (is_exiting.wait(), child.end_soon()), daemon=True)

def flush():
    is_exiting.set()
    ending.join()
    print("flushed", flush=True)

atexit.register(flush)
ending.start()
"""


def test_what_is_to_be_done_at_exit_is_not_cut_off_where_nothing_is_left_behind(project):
    """As when an exporter of traces sends its last batch, to a server that answers slowly."""
    command = [sys.executable, "-c", AT_WORK_AT_EXIT]
    ended = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "flushed\n", "")
