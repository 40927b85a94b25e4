"""Which files a process is made of: when one of them changes, its code is old."""

import json
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from django.utils.autoreload import StatReloader, autoreload_started, iter_all_python_module_files

STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
INSTALLED = {"site-packages", "dist-packages", Path(site.getusersitepackages()).name}


class Sources(StatReloader):
    """Files and folders to look at, as Django's receivers of ``autoreload_started`` know them; it only ever grows."""

    def snapshot(self) -> dict[Path, float]:
        """Return all files that are there, with the time of their last change."""
        while True:
            try:
                return dict(self.snapshot_files())
            except (FileNotFoundError, NotADirectoryError):  # a folder went while it was read
                continue

    def told(self) -> bytes:
        """Return what another process needs to look at the same, and to see what changes from here on."""
        files = dict.fromkeys({*self.extra_files, *iter_all_python_module_files()}) | self.snapshot()
        folders = {str(folder): [*globs] for folder, globs in self.directory_globs.items()}
        return json.dumps({"files": {str(file): at for file, at in files.items()}, "folders": folders}).encode()

    def learn(self, told: bytes) -> dict[Path, float]:
        """Look at what another process is made of, too; return its snapshot."""
        news = json.loads(told)
        files = {Path(file): changed_at for file, changed_at in news["files"].items()}
        self.extra_files.update(files)
        for folder, globs in news["folders"].items():
            self.directory_globs[Path(folder)].update(globs)
        return {file: changed_at for file, changed_at in files.items() if changed_at is not None}


def sources() -> Sources:
    """Return what this process is made of.

    That is every module it has imported, every Python file in packages of the project, since they may be imported any
    time, and what receivers of Django's ``autoreload_started`` add: templates, translations, the project's own.
    """
    found = Sources()
    for folder in packages():
        found.watch_dir(folder, "**/*.py")
    autoreload_started.send_robust(sender=found)
    return found


def packages() -> set[Path]:
    """Return the folders of all imported packages that somebody works on: those that were not installed."""
    roots = [module for name, module in sys.modules.items() if "." not in name and isinstance(module, ModuleType)]
    folders = {Path(folder) for module in roots for folder in vars(module).get("__path__") or ()}
    return {
        folder for folder in folders if not INSTALLED & {*folder.parts} and not folder.is_relative_to(STANDARD_LIBRARY)
    }
