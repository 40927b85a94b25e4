"""The reloader and the files it watches. Restarts are in tests/processes/test_reload.py."""

import os
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest
from django.utils.autoreload import autoreload_started

from django_pgqueue.worker.reloader import Reloader, Sources, sources
from tests.support.waiting import beside, eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_exit_code_is_that_of_a_worker_that_was_not_at_work_yet(number):
    """The signal ends it, and a shell would say so. Python itself might be met half started, and say something else."""
    reloader = Reloader(["sh", "-c", "exec sleep 3600"], shutdown_timeout_seconds=25)

    def interrupt():
        eventually(lambda: hasattr(reloader, "_worker"))  # then it has the signals
        os.kill(os.getpid(), number)

    with beside(interrupt):
        assert reloader.run() == 128 + number


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The folder of a package that is imported, with a module that is not."""
    module = ModuleType("bookshelf")
    folder = tmp_path / "bookshelf"
    module.__path__ = [str(folder)]
    folder.mkdir()
    (folder / "later.py").touch()
    monkeypatch.setitem(sys.modules, "bookshelf", module)
    return folder


def test_everything_python_in_a_package_of_the_project_counts(package):
    looked_at = sources()
    assert package / "later.py" in looked_at.snapshot()
    (package / "inner").mkdir()
    (package / "inner" / "new.py").touch()
    (package / "inner" / "notes.txt").touch()
    assert {path.name for path in looked_at.snapshot() if path.is_relative_to(package)} == {"later.py", "new.py"}


def test_of_what_was_installed_only_imported_modules_count(package, tmp_path):
    installed = tmp_path / "site-packages"
    installed.mkdir()
    sys.modules["bookshelf"].__path__ = [str(package.rename(installed / "bookshelf"))]
    found = sources().snapshot()
    assert not [path for path in found if path.is_relative_to(installed)]
    assert Path(pytest.__file__) in found


def test_module_that_only_looks_like_a_package_keeps_nothing_from_being_watched(package, monkeypatch):
    strange = ModuleType("strange")
    strange.__path__ = None
    monkeypatch.setitem(sys.modules, "strange", strange)
    assert package / "later.py" in sources().snapshot()


def test_receivers_of_django_add_what_the_project_wants_watched(tmp_path):
    def watch(sender, **_):
        sender.watch_dir(tmp_path, "*.toml")

    def fail(**_):
        raise ValueError("not for workers")

    (tmp_path / "prices.toml").touch()
    autoreload_started.connect(fail)
    autoreload_started.connect(watch)
    try:
        assert tmp_path / "prices.toml" in sources().snapshot()
    finally:
        autoreload_started.disconnect(watch)
        autoreload_started.disconnect(fail)


def test_what_one_process_is_made_of_can_be_told_to_another(package, tmp_path):
    (tmp_path / "extra.ini").touch()
    told = sources()
    told.extra_files.add(tmp_path / "extra.ini")
    other = Sources()
    assert other.learn(told.told()) == other.snapshot() == told.snapshot()
    assert {package / "later.py", tmp_path / "extra.ini"} <= set(other.snapshot())


def test_what_a_worker_is_made_of_may_change_before_its_reloader_has_heard_of_it(tmp_path):
    extra = tmp_path / "extra.ini"
    extra.touch()
    worker = sources()
    worker.extra_files.add(extra)
    told = worker.told()
    os.utime(extra, (1, 1))
    reloader = Reloader([], shutdown_timeout_seconds=0)
    reloader._learn(told)
    eventually(lambda: extra in reloader._changed())
