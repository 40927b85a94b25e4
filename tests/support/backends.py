"""Modules of tasks that are imported anew."""

import sys

import pytest

from django_pgqueue import registry

MODULE = "tests.app.elsewhere"


@pytest.fixture
def fresh():
    """As in a process that has not imported the module yet."""

    def forget():
        sys.modules.pop(MODULE, None)
        for name in [name for name in registry.known() if name.startswith(f"{MODULE}.")]:
            del registry._registry[name]

    forget()
    yield
    forget()
