"""Tasks of the bench are its own."""

import subprocess
import sys

from tests.support.benches import ROOT


def test_tasks_of_the_bench_are_known_to_no_other_process():
    code = "import django; django.setup(); from django_pgqueue import registry; print(registry.known())"
    known = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "tests.app.tasks.noop" in known
    assert "bench" not in known
