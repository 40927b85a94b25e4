"""Find a task that is not registered where its name says, as with projects that keep tasks in any module.

A name comes out of the database, and importing a module runs it. So only code is imported that this process trusts
anyway: modules of the packages in ``INSTALLED_APPS``. What is found is used only if it is a task of the framework.
"""

import importlib
import logging
import sys
from types import ModuleType
from typing import Any

from django.apps import apps

from django_pgqueue.base.framework import AnyTask, Task

logger = logging.getLogger("django_pgqueue")

_in_vain: set[str] = set()
MOST_IN_VAIN = 1000


def seek(name: str) -> AnyTask | None:
    """Return the task of the framework that a dotted name leads to, or None."""
    path, _, attribute = name.rpartition(".")
    if not path or not apps.ready or name in _in_vain:
        return None
    found = _attribute(path, attribute)
    if isinstance(found, Task):
        return found
    if len(_in_vain) < MOST_IN_VAIN:
        _in_vain.add(name)  # the code of a process does not change
    return None


def _attribute(path: str, attribute: str) -> Any:
    """Return what a module has of this name; one may have code for that, and raise anything."""
    try:
        return getattr(_module(path), attribute, None)
    except Exception:
        logger.exception("The module %s, which a job names, cannot be asked for %s", path, attribute)
        return None


def _module(path: str) -> ModuleType | None:
    """Return a module that is there already, or belongs to an installed app."""
    if path in sys.modules:
        return sys.modules[path]
    if not _is_trusted(path):
        return None
    try:
        return importlib.import_module(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what skips a module of tests is no Exception, nor is sys.exit()
        if not (isinstance(error, ModuleNotFoundError) and error.name and f"{path}.".startswith(f"{error.name}.")):
            logger.exception("The module %s, which a job names, cannot be imported", path)
        return None


def _is_trusted(path: str) -> bool:
    """Whether a module is part of an installed app; not of those that are there to be run, as ``__main__``."""
    parts = path.split(".")
    if not all(part.isidentifier() and not part.startswith("__") for part in parts):
        return False
    return any(f"{path}.".startswith(f"{config.name}.") for config in apps.get_app_configs())
