"""Checks of an alias in ``TASKS``. The framework's own system check reports it."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as Caution
from django.utils.module_loading import import_string

from django_pgqueue import registry
from django_pgqueue.backend.native_tasks import BACKEND_OPTIONS, TASK_MODULES, check_names, check_options, hints_on_keys
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import postgresql
from django_pgqueue.exceptions import ConfigurationError, InvalidOption
from django_pgqueue.framework import Task
from django_pgqueue.states import LONGEST_QUEUE
from django_pgqueue.validation import check_name


def problems_of(alias: str, parameters: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Yield all that is wrong with an alias at once."""
    place, options = f"TASKS[{alias!r}]", parameters.get("OPTIONS", {})
    if not isinstance(getattr(settings, "PGQUEUE", {}), dict):
        return  # another check says so
    if not apps.is_installed("django_pgqueue"):
        yield Error(
            f"{place} is a PgQueueBackend, but the tables of the queue are not there.",
            hint="Add 'django_pgqueue' to INSTALLED_APPS, and migrate.",
            id="pgqueue.E006",
        )
    yield from _wrong_modules(f"{place}['OPTIONS']", options.get(TASK_MODULES) or [])
    yield from _wrong_options(f"{place}['OPTIONS']", options)
    yield from _wrong_tasks(f"{place}['OPTIONS']['tasks']", options.get("tasks", {}))
    yield from _wrong_queues(f"{place}['QUEUES']", parameters.get("QUEUES", ()))
    yield from _wrong_database(place, options.get("database"))
    if conf.retention_days == 0:
        yield Caution(
            f"Results of {place} are not kept: one that was successful does not exist.",
            hint="Let PGQUEUE['RETENTION_DAYS'] be 1 or more, or silence this check if results are not asked for.",
            id="pgqueue.W004",
        )


def _wrong_options(place: str, options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    for key in sorted(set(options) - BACKEND_OPTIONS):
        hint = f"{hints_on_keys([key])}Keys are: {', '.join(sorted(BACKEND_OPTIONS))}."
        yield Error(f"{place} has no key {key!r}.", hint=hint, id="pgqueue.E007")
    for key in sorted((set(options) & BACKEND_OPTIONS) - {TASK_MODULES, "tasks"}):
        try:
            check_options({key: options[key]})
        except (InvalidOption, TypeError) as error:
            yield Error(f"{place}[{key!r}] is {options[key]!r}.", hint=str(error), id="pgqueue.E007")


def _wrong_modules(place: str, modules: Any) -> Iterator[CheckMessage]:
    if not isinstance(modules, list | tuple) or not all(isinstance(module, str) for module in modules):
        yield Error(
            f"{place}[{TASK_MODULES!r}] is {modules!r}, and none of it is imported.",
            hint="Make it a list of dotted paths, as in ['shop.background'].",
            id="pgqueue.E007",
        )


def _wrong_tasks(place: str, given: Any) -> Iterator[CheckMessage]:
    """Look at what the settings say of single tasks; which arguments a task has is known where it is declared."""
    if not isinstance(given, Mapping) or not all(isinstance(one, Mapping) for one in given.values()):
        hint = "Make it a dict of dicts, as in {'shop.tasks.send_receipt': {'max_attempts': 5}}."
        yield Error(f"{place} is {given!r}.", hint=hint, id="pgqueue.E007")
        return
    for name, options in given.items():
        try:
            check_names(options)
            check_options(options)
        except (InvalidOption, TypeError) as error:
            yield Error(f"{place}[{name!r}] is {options!r}.", hint=str(error), id="pgqueue.E007")
        if problem := _problem_of_path(name):
            what, hint = problem
            yield Error(f"{place} has {name!r}, which {what}.", hint=hint, id="pgqueue.E007")


def _problem_of_path(name: Any) -> tuple[str, str] | None:
    """Return why the options under this path would never be used, and what to do; None where it is that of a task.

    The task may be one of another alias: ``using(backend=…)`` makes jobs of this one. The settings are trusted, so its
    module is imported.
    """
    try:
        found = registry.find(name) or import_string(name)
    except Exception:  # noqa: BLE001 - a module may raise anything
        found = None
    if isinstance(found, registry.TaskDefinition) and not found.backend:
        return "is a @task of django_pgqueue", "Give them to its own @task, which these settings are not for."
    path = found.name if isinstance(found, registry.TaskDefinition) else getattr(found, "module_path", "")
    if not path or not isinstance(found, registry.TaskDefinition | Task):
        return "is no task", "Use the dotted path of a function that is a task of the Tasks framework."
    return None if path == name else ("is another name of a task", f"Write {path!r}.")


def _wrong_queues(place: str, queues: Any) -> Iterator[CheckMessage]:
    if isinstance(queues, str):
        yield Error(
            f"{place} is the text {queues!r}, of which each character would be a queue.",
            hint="Make it a list of names, as in ['default'].",
            id="pgqueue.E008",
        )
        return
    for queue in queues:
        try:
            check_name("A queue", queue, LONGEST_QUEUE)
        except InvalidOption as error:
            yield Error(f"{place} has {queue!r}.", hint=str(error), id="pgqueue.E008")


def _wrong_database(place: str, alias: str | None) -> Iterator[CheckMessage]:
    """Look at the database of the alias; and at the queue's own, where its app is not there to do so itself."""
    if alias is None and apps.is_installed("django_pgqueue"):
        return
    try:
        postgresql(alias or conf.database)
    except ConfigurationError as error:
        yield Error(f"{place} has no database that can hold its jobs.", hint=str(error), id="pgqueue.E009")
