"""Pieces of code on a page of the documentation, one below each heading, and the names that they leave to others."""

import ast
import builtins
import itertools
from pathlib import Path

from tests.support.pages import tokens


def pieces(page: Path) -> dict[str, str]:
    """Return the Python below each heading of a page."""
    found: dict[str, str] = {}
    heading = ""
    for before, token in itertools.pairwise(tokens(page)):
        if before.type == "heading_open":
            heading = token.content
        elif token.info == "python":
            found[heading] = found.get(heading, "") + token.content
    return found


def left_out(code: str) -> list[str]:
    """Return the names that code uses and neither defines nor imports."""
    used, bound = set(), set(dir(builtins))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
    return sorted(used - bound)
