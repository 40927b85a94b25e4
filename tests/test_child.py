"""How a worker process ends."""

import subprocess
import sys

from tests.support.waiting import PATIENCE_SECONDS

LEAVES_A_THREAD = """
import threading
from django_pgqueue.runtime import child
child.LINGER_SECONDS = 0.0
threading.Thread(target=threading.Event().wait, name="of a job").start()
threading.Thread(target=child.end_soon, daemon=True).start()
"""


def test_thread_that_a_job_has_left_behind_does_not_keep_its_process(project):
    """The interpreter would wait for it; a process that is to be recycled would never be gone."""
    command = [sys.executable, "-c", LEAVES_A_THREAD]
    ended = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 0
    assert "ends, and threads in it that jobs have left behind: of a job" in ended.stderr
