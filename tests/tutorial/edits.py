"""Apply what the page says of a file of the project."""

import ast
from pathlib import Path

KEPT = "# ... those that are there"


def edit(path: Path, code: str, *, is_new: bool) -> None:
    """Write a new file; or put imports below the others, or one thing in the place of that of its name."""
    if is_new:
        assert not path.exists(), f"{path.name} is there already"
        path.write_text(code)
        return
    source, wanted = path.read_text(), ast.parse(code).body
    if all(isinstance(node, ast.Import | ast.ImportFrom) for node in wanted):
        line = max(node.end_lineno for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom))
        path.write_text(_spliced(source, line + 1, line, f"\n{code}"))
        return
    [thing] = wanted
    [there] = [node for node in ast.parse(source).body if _name_of(node) == _name_of(thing)]
    if KEPT in code:
        code = code.replace(KEPT, "\n".join(f"{ast.unparse(one)}," for one in there.value.elts))
    path.write_text(_spliced(source, _begin_of(there), there.end_lineno, code))


def _name_of(node: ast.stmt) -> str | None:
    return node.targets[0].id if isinstance(node, ast.Assign) else getattr(node, "name", None)


def _begin_of(node: ast.stmt) -> int:
    return min(one.lineno for one in [node, *getattr(node, "decorator_list", [])])


def _spliced(source: str, first: int, last: int, code: str) -> str:
    """Put code in the place of these lines, counted from 1."""
    lines = source.splitlines(keepends=True)
    return "".join([*lines[: first - 1], code, *lines[last:]])
