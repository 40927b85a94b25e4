"""The reloader and the files it watches. Restarts of workers are in tests/processes/test_reload.py."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
from django.utils.autoreload import autoreload_started

from django_pgqueue.management.commands.pgqueue_worker import StoppedEarly, stop_at_once
from django_pgqueue.worker.reloader import Reloader, Sources, project_packages
from django_pgqueue.worker.supervisor import stop_signals
from tests.support.waiting import beside, eventually

WAITS = "it starts again after the next change"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_exit_code_is_that_of_a_worker_that_was_not_at_work_yet(number):
    """The signal ends it, and a shell would say so. Python itself might be met half started, and say something else."""
    reloader = Reloader(["sh", "-c", "exec sleep 3600"])

    def interrupt():
        eventually(lambda: reloader._worker)  # then it has the signals
        os.kill(os.getpid(), number)

    with beside(interrupt):
        assert reloader.run() == 128 + number


def test_signal_that_another_thread_takes_is_passed_on():
    """As the system may choose; and as with one that comes right before the wait for the worker, no wait is broken."""
    reloader = Reloader(["sh", "-c", "exec sleep 3600"])

    def interrupt():
        worker = eventually(lambda: reloader._worker)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        try:
            eventually(lambda: reloader._worker is None)
        finally:
            worker.kill()

    with beside(interrupt):
        assert reloader.run() == 128 + signal.SIGTERM


def test_signal_that_comes_while_the_worker_is_started_is_passed_on(monkeypatch):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            started.append(self)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    assert Reloader(["sh", "-c", "exec sleep 3600"]).run() == 128 + signal.SIGTERM
    assert len(started) == 1


def test_worker_that_ends_with_an_error_ends_its_reloader_only_before_the_first_change(package, tmp_path, caplog):
    """The reloader has loaded the package alone: an app beside it is new, and counts too."""
    assert Reloader(["sh", "-c", "exit 7"]).run() == 7
    starts = tmp_path / "starts"
    counted = shlex.quote(str(starts))
    ends = f"echo >> {counted}; case $(wc -l < {counted}) in 1) exit 3;; 2) exit 7;; 3) kill -9 $$;; esac"
    annex = tmp_path / "annex"
    annex.mkdir()
    (annex / "__init__.py").touch()

    def repair():
        eventually(lambda: caplog.text.count(WAITS) == 1)
        (annex / "tasks.py").touch()
        eventually(lambda: caplog.text.count(WAITS) == 2)
        (package / "later.py").unlink()

    with beside(repair):
        assert Reloader(["sh", "-c", ends]).run() == 0
    assert starts.read_text().count("\n") == 4
    assert "exit code 7" in caplog.text
    assert "exit code -9" in caplog.text


def test_signal_that_comes_while_a_change_is_waited_for_is_left_to_the_command(tmp_path, caplog, monkeypatch):
    """No worker is there to be told."""
    mark = shlex.quote(str(tmp_path / "started"))
    look = Sources.snapshot

    def interrupted(sources: Sources) -> dict[Path, float]:
        if WAITS in caplog.text:
            os.kill(os.getpid(), signal.SIGTERM)
        return look(sources)

    monkeypatch.setattr(Sources, "snapshot", interrupted)
    with pytest.raises(StoppedEarly, match="SIGTERM"), stop_signals(stop_at_once):
        Reloader(["sh", "-c", f"test -e {mark} && exit 7; touch {mark}; exit 3"]).run()
    assert WAITS in caplog.text


def sources() -> Sources:
    return Sources(project_packages())


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


def test_file_that_has_changed_while_the_process_was_started_has_changed(package, tmp_path):
    """The process may have read it before. Of a file that is not its own it does not matter."""
    other = tmp_path / "other.py"
    before = sources().known | {other: 1.0}
    os.utime(package / "later.py", (1, 1))
    assert Sources(project_packages(), before).wait_for_change() == [package / "later.py"]


def test_files_that_are_new_or_gone_count_but_not_modules_that_are_imported_later(package, tmp_path, monkeypatch):
    looked_at = sources()
    (tmp_path / "other.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other", raising=False)
    __import__("other")
    assert looked_at.snapshot() == looked_at.known
    (package / "later.py").rename(package / "renamed.py")
    assert looked_at.wait_for_change() == [package / "later.py", package / "renamed.py"]
