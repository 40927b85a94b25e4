"""How far the switch is: the flag, ``settings.PGQUEUE_CUTOVER``. Read at each call, so that it can be flipped."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from django.conf import settings

from django_pgqueue.exceptions import ConfigurationError


class Stage(StrEnum):
    """Who gets the calls that are enqueued now."""

    OLD = "old"  # the old side alone
    OLD_LEADS = "old_leads"  # both; the old side runs them
    NEW_LEADS = "new_leads"  # both; the new side runs them
    NEW = "new"  # the new side alone


STAGES = tuple(map(str, Stage))

Flag = str | Mapping[str, str] | Callable[[str], str]


def flag() -> Flag:
    """Return the setting: a stage, one for each task's name with ``"*"`` for the others, or a function of the name."""
    given: Flag = getattr(settings, "PGQUEUE_CUTOVER", Stage.OLD)
    return given


def stage_of(task: str) -> Stage:
    """Return the stage of a task.

    Raises:
        ConfigurationError: there is no such stage.
    """
    given = flag()
    if callable(given):
        given = given(task)
    elif isinstance(given, Mapping):
        given = given.get(task) or given.get("*", Stage.OLD)
    try:
        return Stage(given)
    except ValueError as error:
        raise ConfigurationError(
            f"PGQUEUE_CUTOVER says {given!r} for {task}. Stages are: {', '.join(STAGES)}."
        ) from error
