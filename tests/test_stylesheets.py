"""Mistakes in stylesheets that a browser does not report: a rule that is not closed swallows all that follow it."""

from pathlib import Path

import pytest

import django_pgqueue

STYLESHEETS = sorted((Path(django_pgqueue.__file__).parent / "static" / "django_pgqueue").glob("*.css"))


@pytest.mark.parametrize("path", STYLESHEETS, ids=lambda path: path.name)
def test_every_rule_is_closed_before_the_next_one(path):
    depth = 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        bare = line.split("/*")[0]
        assert line[:1] in {" ", "@", "}", ""} or "{" not in bare or depth == 0, f"{path.name}:{number}: {line}"
        depth += bare.count("{") - bare.count("}")
    assert depth == 0
