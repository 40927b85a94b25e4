"""The package as others get it: its files built, and installed where nothing of this repository can be found."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

OF_THE_TESTS = {"PYTHONPATH", "DJANGO_SETTINGS_MODULE", "DATABASE_URL", "PGQUEUE"}
"""Variables that would lead back to the repository, or to what the tests want of it."""


def build(folder: Path, *, source: Path = ROOT, kind: str = "wheel") -> Path:
    """Build the wheel, or with ``kind="sdist"`` the other file, by the project's build backend; needs no network."""
    run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)], cwd=source)
    [built] = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


class Environment:
    """A virtual environment with a wheel in it; all else that it needs is taken from the one that runs the tests.

    The folder with those packages is named in a ``.pth`` file. Of such files inside it, as editable installs have them,
    Python reads none, so the repository is out of reach.

    Args:
        folder: is made, outside of the repository.
        wheel: is installed by pip.

    Attributes:
        python: its interpreter.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", str(self.python)]
        run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], cwd=folder)
        [site_packages] = folder.glob("lib/python*/site-packages")
        (site_packages / "tests.pth").write_text(sysconfig.get_paths()["purelib"])

    def run(self, *arguments: str, cwd: Path, **environment: str) -> str:
        """Run ``python`` with these arguments; return what it printed. It fails as an assertion that shows that."""
        return run([str(self.python), *arguments], cwd=cwd, env=self.variables(**environment))

    def start(self, *arguments: str, cwd: Path, log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start ``python`` in a session of its own, its output in a file; the caller ends it."""
        with log.open("wb") as file:
            return subprocess.Popen(
                [self.python, *arguments],
                cwd=cwd,
                env=self.variables(**environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def variables(self, **environment: str) -> dict[str, str]:
        """Return the environment variables that the tests were started with, and those given."""
        inherited = {name: value for name, value in os.environ.items() if name not in OF_THE_TESTS}
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        return {**inherited, "PATH": path, "VIRTUAL_ENV": str(self.python.parent.parent), **environment}


def run(command: Iterable[str], *, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([*command], cwd=cwd, env=env, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
