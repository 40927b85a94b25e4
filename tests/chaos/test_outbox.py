"""A part of the run that kills relays and producers; ``make soak`` makes the whole."""

import subprocess
import sys


def test_each_committed_call_becomes_one_job_whatever_is_killed(project):
    command = [sys.executable, "-m", "tests.chaos.outbox", "--calls=1500", "--kills=15"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, twice 0, of rolled back 0, with another id 0" in done.stdout
