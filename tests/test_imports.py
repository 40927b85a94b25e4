"""The folders are floors: imports go down only."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "django_pgqueue"

FLOORS = [
    (
        *("conf", "exceptions", "version", "states", "records"),
        *("validation", "keys", "options", "retry_policy", "log_lines", "stored_values"),
    ),
    ("signals", "framework", "backport", "middleware", "registry"),
    ("db",),
    ("services",),
    ("flow",),
    ("jobs", "outbox"),
    ("logs", "queues", "workers"),
    ("tasks", "models", "routers"),
    ("workflows",),
    ("schedules",),
    ("maintenance",),
    ("worker",),
    ("insights",),
    ("doctor",),
    ("cli", "testing"),
    ("admin", "backend", "contrib", "management", "embedded", "bench"),
    ("checks",),
    ("apps",),
]
"""Rooms of the package from the lowest floor up. A room imports from its own floor and those below."""

FACES = {"admin", "apps", "backend", "contrib", "management", "routers", "testing"}
"""None of these imports another, but for ``apps``, which puts them together."""


def room(module: str) -> str:
    """Return the part of a dotted name below the package: ``jobs.ack`` -> ``jobs``."""
    return module.split(".")[1] if "." in module else "__init__"


def modules() -> dict[str, Path]:
    """Return all modules of the package by their dotted names, but for migrations."""
    paths = [path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts]
    return {
        ".".join(["django_pgqueue", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__"): path
        for path in paths
    }


MODULES = modules()


def imports_of(path: Path) -> set[str]:
    """Return the modules of the package that a file imports: late ones, and those for type checkers, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "django_pgqueue":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
    return found


GRAPH = {name: imports_of(path) - {name} for name, path in MODULES.items()}


def test_every_room_has_a_floor():
    floors = [name for floor in FLOORS for name in floor]
    assert sorted(floors) == sorted({room(name) for name in MODULES} - {"__init__"})


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"django_pgqueue"}))
def test_imports_go_down_only(name):
    floor = {one: number for number, rooms in enumerate(FLOORS) for one in rooms}
    here = room(name)
    for module in GRAPH[name] - {"django_pgqueue"}:
        assert floor[room(module)] <= floor[here], f"{name} imports {module}, which is above it"


def test_no_module_imports_itself_by_way_of_others():
    done: set[str] = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for target in sorted(GRAPH[name] - {"django_pgqueue"}):
                visit(target, [*trail, name])
            done.add(name)

    for name in GRAPH:
        visit(name, [])


def test_faces_do_not_import_each_other():
    for name, targets in GRAPH.items():
        if room(name) in FACES - {"apps"}:
            assert not {room(module) for module in targets} & (FACES - {room(name)}), name


def test_nothing_needs_what_is_optional():
    """Integrations are loaded where what they are for is installed, and named by settings."""
    for name, targets in GRAPH.items():
        if room(name) not in {"contrib", "apps"}:
            assert not [module for module in targets if room(module) == "contrib"], name


def test_jobs_do_not_need_the_models():
    """A job is enqueued before the apps are loaded, too."""
    below = {one for rooms in FLOORS[: FLOORS.index(("schedules",))] for one in rooms} - {"models"}
    for name, targets in GRAPH.items():
        if room(name) in below:
            assert "django_pgqueue.models" not in targets, name


def test_nothing_beside_manage_py_hides_a_module_of_python():
    """A script's own folder is searched first."""
    assert not {path.stem for path in Path(__file__).parent.iterdir()} & set(sys.stdlib_module_names)
