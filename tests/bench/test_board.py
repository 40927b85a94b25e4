"""The board keeps a record for each job."""

import os

from django_pgqueue.bench.board import Board


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
