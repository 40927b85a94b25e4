"""Tasks of the bench are its own."""

import os
import subprocess
import sys

from django_pgqueue.bench.tasks import Board
from tests.support.benches import ROOT


def test_tasks_of_the_bench_are_known_to_no_other_process():
    code = "import django; django.setup(); from django_pgqueue import registry; print(registry.known())"
    known = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "tests.app.tasks.noop" in known
    assert "bench" not in known


# The board


def test_board_keeps_the_last_run_of_each_job(tmp_path):
    board = Board.make(tmp_path / "board", size=200)
    assert board.share_started(range(200)) == 0
    for number in range(100):
        board.note(number, attempt=1)
    Board(tmp_path / "board").note(7, attempt=2)
    runs = list(board.runs(range(6, 8)))
    assert [(run.pid, run.attempt) for run in runs] == [(os.getpid(), 1), (os.getpid(), 2)]
    assert runs[0].started_at <= runs[1].started_at
    assert board.share_started(range(200)) == 0.5
    assert [board.is_started(number) for number in (99, 100)] == [True, False]
