"""Environments of tests/foreign: processes that need the same one at the same time share it."""

import fcntl

import pytest

from tests.foreign.environment import made_once


def test_folder_is_made_by_one_process_and_found_by_the_next(tmp_path):
    folder = tmp_path / "kept" / "django"
    with made_once(folder) as wanted:
        assert wanted
        with (tmp_path / "kept" / "django.lock").open() as of_another, pytest.raises(BlockingIOError):
            fcntl.flock(of_another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / "package").touch()
    with made_once(folder) as wanted:
        assert not wanted
        assert (folder / "package").exists()


def test_folder_that_was_not_completed_is_made_anew(tmp_path):
    folder = tmp_path / "django"
    with pytest.raises(RuntimeError), made_once(folder):
        (folder / "half").touch()
        raise RuntimeError
    with made_once(folder) as wanted:
        assert wanted
        assert list(folder.iterdir()) == []
