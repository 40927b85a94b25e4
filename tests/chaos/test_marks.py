from tests.chaos.marks import Run, read_runs

START = "start 7 1 1 11 4711 1000\n"
END = "end 7 1 1 11 4711 2000\n"


def test_runs_are_read_from_their_marks(tmp_path):
    (tmp_path / "4711-1").write_text(START + END)
    assert list(read_runs(tmp_path)) == [Run(7, 1, 1, 11, 4711, 1000, "end", 2000)]


def test_mark_that_was_cut_off_by_the_end_of_its_process_is_none(tmp_path):
    (tmp_path / "4711-1").write_text(START + END[:5])
    (tmp_path / "4712-1").write_text(START[:10])
    assert list(read_runs(tmp_path)) == [Run(7, 1, 1, 11, 4711, 1000)]
