"""Both primaries of two databases with standbys die while the shop sells; ``make cluster`` takes longer over it."""

import os
import subprocess
import sys

NOT_OURS = {"DATABASE_URL", "DJANGO_SETTINGS_MODULE", "SHOP_VAR"}


def test_both_primaries_die_while_the_shop_sells_and_nothing_is_lost(project):
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.shop", "--seconds=1"],
        cwd=project,
        env={name: value for name, value in os.environ.items() if name not in NOT_OURS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "after the kill of queue_2" in done.stdout
