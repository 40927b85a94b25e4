import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copytree

from tests.support.pages import DOCS
from tests.support.pieces import left_out, pieces
from tests.support.wheel import ROOT, Environment, build

CONSUMER = Path(__file__).with_name("consumer")
CACHE = ROOT / ".mypy_cache" / "consumer"

MODULES = ("testing", "backend", "logs", "embedded", "signals", "exceptions", "states")
NAMESPACES = ("jobs", "queues", "schedules", "workers", "workflows")

PUBLIC = re.compile(
    rf"django_pgqueue\.(?:(?:{'|'.join((*MODULES, *NAMESPACES))})\.)?[A-Za-z]\w*"
    r"|django_pgqueue\.conf\.(?:\w+Settings|TaskDefaults)"
)
"""Names that others may use. Those of classes stand for their members."""

OF_MODELS = {"django_pgqueue.testing.assert_enqueued", "django_pgqueue.testing.enqueued"}
"""Return models, whose fields have no types but for the mypy plugin of django-stubs."""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        environment = Environment(Path(folder) / "venv", build(Path(folder)))
        consumer = copytree(CONSUMER, Path(folder) / "consumer")
        write_pieces(consumer / "shop" / "pieces")
        codes = [
            call(environment, "mypy", f"--cache-dir={CACHE}", ".", cwd=consumer),
            call(environment, "basedpyright", cwd=consumer),
        ]
        unknown = unknown_types(environment, consumer)
    if unknown:
        print("Public, and not fully typed:", *unknown, sep="\n  ")
    return 1 if unknown or any(codes) else 0


def write_pieces(folder: Path) -> None:
    """Write each piece of code of the page on writing tasks as a module, with stand-ins for what it leaves out."""
    folder.mkdir()
    (folder / "__init__.py").touch()
    for heading, code in pieces(DOCS / "how-to" / "write-tasks.md").items():
        names = left_out(code)
        given = f"from shop.stand_ins import {', '.join(names)}\n\n" if names else ""
        (folder / f"{'_'.join(re.findall(r'[a-z]+', heading.lower()))}.py").write_text(given + code)


def call(environment: Environment, *arguments: str, cwd: Path) -> int:
    """Run a type checker; print what it says only where it has found anything."""
    command = [environment.python, "-m", *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment.variables(), check=False, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr)
    return done.returncode


def unknown_types(environment: Environment, folder: Path) -> list[str]:
    """Return the public names whose type pyright has to guess, or cannot know."""
    done = subprocess.run(
        [
            environment.python,
            "-m",
            "basedpyright",
            "--verifytypes",
            "django_pgqueue",
            "--ignoreexternal",
            "--outputjson",
        ],
        cwd=folder,
        env=environment.variables(),
        capture_output=True,
        check=False,
    )
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    public = [symbol for symbol in symbols if PUBLIC.fullmatch(symbol["name"]) and symbol["name"] not in OF_MODELS]
    assert public, done.stderr
    return [symbol["name"] for symbol in public if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]]


if __name__ == "__main__":
    sys.exit(main())
