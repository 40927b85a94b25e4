"""The folders are floors: imports go down only."""

import ast
import re
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "django_pgqueue"

FLOORS = ["base", "ground", "lifecycle", "housekeeping", "runtime", "faces"]
GROUND = {"db", "tasks", "timetable"}
FLOORS_OF_THE_ADMIN = ["parts", "lists", "verbs", "pages", "base"]  # and above these, what is registered
FOLDERS_WITH_A_MAP = [
    *("lifecycle", "housekeeping", "runtime", "staff", "staff/glance", "staff/health", "bench"),
    *("admin", "admin/parts", "admin/lists", "admin/verbs", "admin/pages"),
]
# Models are read by the faces; the public names in __init__ and the migrations are apart.
APART = {"__init__", "migrations"}


def room(module: str) -> str:
    """Return the part of a dotted name below the package: ``lifecycle.ack`` -> ``lifecycle``."""
    return module.split(".")[1] if "." in module else "__init__"


def floor(name: str) -> int:
    if name in GROUND:
        return FLOORS.index("ground")
    return FLOORS.index(name) if name in FLOORS else FLOORS.index("faces")


def imports_of(path: Path) -> set[str]:
    """Return the modules of the package that a file imports at its top level."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django_pgqueue"):
            found |= (
                {node.module} if node.module != "django_pgqueue" else {f"django_pgqueue.{a.name}" for a in node.names}
            )
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("django_pgqueue")}
    return found


def modules() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0].split(".")[0] not in APART]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in imports_of(path):
        assert floor(room(module)) <= floor(here), f"{here} imports {module}, which is above it"


def test_faces_do_not_import_each_other():
    faces = {"admin", "apps", "backend", "checks", "cutover", "routers", "embedded", "management", "testing"}
    for path in modules():
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if here in faces:
            assert not {room(module) for module in imports_of(path)} & (faces - {here}), path


def test_only_the_app_for_switching_knows_of_itself():
    """It is installed for a while, and removed."""
    for path in modules():
        if path.relative_to(PACKAGE).parts[0] != "cutover":
            assert "django_pgqueue.contrib.cutover" not in path.read_text(), path


def test_imports_inside_the_admin_go_down_only():
    """Not even for the type checker does a part know what is made of it."""
    floors = FLOORS_OF_THE_ADMIN
    for path in (PACKAGE / "admin").rglob("*.py"):
        here = path.relative_to(PACKAGE / "admin").parts[0].removesuffix(".py")
        for room_there in set(re.findall(r"django_pgqueue\.admin\.(\w+)", path.read_text())):
            if here in floors:
                assert room_there in floors[: floors.index(here) + 1], f"{path} imports {room_there}, which is above it"


def test_lifecycle_does_not_need_the_models():
    for path in (PACKAGE / "lifecycle").rglob("*.py"):
        assert "django_pgqueue.models" not in path.read_text()


@pytest.mark.parametrize("folder", FOLDERS_WITH_A_MAP)
def test_map_of_a_folder_names_all_that_is_in_it(folder):
    """Its docstring is where a reader begins."""
    drawn = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text())) or ""
    there = {
        path.stem for path in (PACKAGE / folder).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    missing = {name for name in there - {"__init__"} if not re.search(rf"\b{name}\b", drawn)}
    assert not missing, f"{folder}/__init__.py does not say what these are for: {sorted(missing)}"


def test_no_import_cycles():
    graph = {}
    for path in modules():
        name = ".".join(["django_pgqueue", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
        graph[name] = {module for module in imports_of(path) if room(module) != "__init__"}

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail, name])
        for target in graph.get(name, ()):
            visit(target, [*trail, name])

    for name in graph:
        visit(name, [])


def test_nothing_beside_manage_py_hides_a_module_of_python():
    """A script's own folder is searched first."""
    assert not {path.stem for path in Path(__file__).parent.iterdir()} & set(sys.stdlib_module_names)
