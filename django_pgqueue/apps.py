from collections.abc import Collection, Iterator
from importlib import import_module
from importlib.util import find_spec

from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from django_pgqueue import middleware


class PgQueueConfig(AppConfig):
    """Loads the modules that have tasks, and connects the checks and the installed integrations.

    They are the ``tasks.py`` of every installed app, and those that ``task_modules`` of an alias in ``TASKS`` names.
    """

    name = "django_pgqueue"
    label = "pgqueue"
    verbose_name = _("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_pgqueue import checks  # noqa: F401, PLC0415 - checks register themselves, once apps are loaded

        middleware.add(_run_soon, middleware.runners)
        _watch_jobs()
        autodiscover_modules("tasks")
        for module in _task_modules():
            import_module(module)


def _run_soon(alias: str, ids: Collection[int]) -> None:
    from django_pgqueue.testing.immediate_mode import run_soon  # noqa: PLC0415 - for tests and development only

    run_soon(alias, ids)


def _task_modules() -> Iterator[str]:
    """Yield the modules that ``TASKS`` names; checks report errors in the setting."""
    aliases = getattr(settings, "TASKS", {})
    for given in aliases.values() if isinstance(aliases, dict) else ():
        options = given.get("OPTIONS") if isinstance(given, dict) else None
        modules = options.get("task_modules") if isinstance(options, dict) else None
        yield from (one for one in modules if isinstance(one, str)) if isinstance(modules, list | tuple) else ()


def _watch_jobs() -> None:
    if is_installed("opentelemetry.trace"):
        from django_pgqueue.contrib import opentelemetry  # noqa: PLC0415 - an extra

        opentelemetry.install()
    if is_installed("sentry_sdk"):
        from django_pgqueue.contrib import sentry  # noqa: PLC0415 - for the same reason

        sentry.install()


def is_installed(module: str) -> bool:
    """Whether a module can be imported; its package may be there without it, or not at all."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
