"""Half a minute of a soak: every kind of fault at least once. ``make soak`` is the long one."""

import os
import subprocess
import sys

OPTIONS = ("--minutes=0", "--rate=250", "--commands=1,1,1", "--lease=3")


def test_nothing_is_lost_silently_duplicated_or_stuck(project):
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *OPTIONS],
        cwd=project,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, silently duplicated 0, stuck 0, missed changes 0, opened early 0" in done.stdout
