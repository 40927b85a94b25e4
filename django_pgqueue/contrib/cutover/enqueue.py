"""Enqueue on one of two sides while a project switches from another queue."""

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, ParamSpec

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.db import connections, transaction

from django_pgqueue.conf import conf
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.jobs.handle import JobHandle
from django_pgqueue.log_lines import OneLine
from django_pgqueue.tasks import Task

logger = logging.getLogger("django_pgqueue.contrib.cutover")
logger.addFilter(OneLine())

KEY = "pgqueue_cutover"  # keyword argument on the old side, key in the metadata of the job on the new one


@dataclass(frozen=True, slots=True)
class CallTag:
    """The mark of one call."""

    call: str  # the id of its row
    leads: str  # the side that runs it, "old" or "new"
    compares: bool  # the other runs it too

    def is_run_by(self, side: str) -> bool:
        return self.compares or self.leads == side


# Stages


class CutoverStage(StrEnum):
    """The side that gets the calls that are enqueued now."""

    OLD = "old"  # the old side alone
    OLD_LEADS = "old_leads"  # both; the old side runs them
    NEW_LEADS = "new_leads"  # both; the new side runs them
    NEW = "new"  # the new side alone


STAGES = tuple(map(str, CutoverStage))

Flag = str | Mapping[str, str] | Callable[[str], str]


def flag() -> Flag:
    """Return the setting: a stage, one for each task's name with ``"*"`` for the others, or a function of the name."""
    given: Flag = getattr(settings, "PGQUEUE_CUTOVER", CutoverStage.OLD)
    return given


def stage_of(task: str) -> CutoverStage:
    """Return the stage of a task; raise ConfigurationError where the flag names none."""
    given = flag()
    if callable(given):
        given = given(task)
    elif isinstance(given, Mapping):
        given = given.get(task) or given.get("*", CutoverStage.OLD)
    try:
        return CutoverStage(given)
    except ValueError as error:
        raise ConfigurationError(
            f"PGQUEUE_CUTOVER says {given!r} for {task}. Stages are: {', '.join(STAGES)}."
        ) from error


P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class Cutover(Generic[P]):
    """One task on both sides of the switch; ``enqueue`` takes the place of that of either.

    Attributes:
        new: our task. Its name is the one that the flag and the report know.
        old: a function that enqueues on the old queue, such as ``delay`` of a Celery task. It gets the arguments of the
            call and, while both sides get calls, the keyword argument ``pgqueue_cutover``.
        compare: both sides run the function and their results are compared. For functions without effects.
    """

    new: Task[P, Any]
    old: Callable[..., object]
    compare: bool = False

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any] | None:
        """Send one call, where its stage says. Ours is inserted in the caller's transaction on the queue's database.

        The old queue gets the call once that has committed, so that a rollback sends neither; at once, where there is
        no transaction, or autocommit is off. Its exception is raised then, or logged where it only follows.

        Returns:
            The handle of our job; None where only the old side gets the call.

        Raises:
            ConfigurationError: the flag says a stage that there is not.
            As ``Task.enqueue``, where our side gets the call.
        """
        stage = stage_of(self.new.name)
        if stage is CutoverStage.NEW:
            return self.new.enqueue(*args, **kwargs)
        if stage is CutoverStage.OLD:
            self._enqueue_old(args, kwargs)
            return None
        with transaction.atomic(using=conf.database):
            return self._enqueue_both(stage, args, kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any] | None:
        """Do what ``enqueue`` does from async code."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(*args, **kwargs)

    def _enqueue_both(self, stage: CutoverStage, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobHandle[Any]:
        from django_pgqueue.contrib.cutover.models import CutoverCall  # noqa: PLC0415 - tasks are declared before apps are loaded

        tag = CallTag(call=str(uuid.uuid4()), leads=stage.removesuffix("_leads"), compares=self.compare)
        mark = {KEY: asdict(tag)}
        handle = self.new.using(metadata={**self.new.options.metadata, **mark}).enqueue(*args, **kwargs)
        if handle.created:
            CutoverCall.objects.using(conf.database).create(
                id=tag.call, task=self.new.name, stage=stage, compares=self.compare
            )
            self._enqueue_old(args, {**kwargs, **mark}, is_robust=stage is CutoverStage.NEW_LEADS)
        elif stage is CutoverStage.OLD_LEADS:  # our job has met its conflicting one, by a key that the old side lacks
            self._enqueue_old(args, kwargs)
        return handle

    def _enqueue_old(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_robust: bool = False) -> None:
        def call() -> None:
            self.old(*args, **kwargs)

        if not _commits_by_hand():
            transaction.on_commit(call, using=conf.database, robust=is_robust)
            return
        try:
            call()
        except Exception:
            if not is_robust:
                raise
            logger.exception("The old side of %s, which only follows, did not get a call", self.new.name)


def _commits_by_hand() -> bool:
    """Whether autocommit is off, by ``set_autocommit(False)``: hooks are refused, or run once it is on again."""
    connection = connections[conf.database]
    return not (connection.commit_on_exit if connection.in_atomic_block else connection.get_autocommit())


@register("pgqueue")
def check_stages(**_: Any) -> list[CheckMessage]:
    """Find every wrong stage of the flag; what a function will return is not known."""
    given = flag()
    if callable(given):
        return []
    return [
        Error(f"PGQUEUE_CUTOVER has {stage!r}.", hint=f"Stages are: {', '.join(STAGES)}.", id="pgqueue_cutover.E001")
        for stage in (given.values() if isinstance(given, Mapping) else [given])
        if stage not in STAGES
    ]
