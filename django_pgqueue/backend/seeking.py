"""Find a task that is not registered in a module that is there already: one of another backend, or of a former setting.

A name comes out of the database. So nothing is imported because of it, and no code of a module is asked: only what
stands in the module under this name counts, and only if it is a task of the framework.
"""

import sys
from types import ModuleType

from django_pgqueue.framework import AnyTask, Task


def seek(name: str) -> AnyTask | None:
    """Return the task of the framework that a dotted name leads to, or None."""
    path, _, attribute = name.rpartition(".")
    module = sys.modules.get(path)
    if not isinstance(module, ModuleType):
        return None
    # Past a module that loads itself, or others, when it is asked for an attribute.
    found = ModuleType.__getattribute__(module, "__dict__").get(attribute)
    return found if isinstance(found, Task) else None
