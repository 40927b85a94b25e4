"""Middleware: code around the insert of jobs and around each run; that of the project, and that of integrations.

``PGQUEUE["MIDDLEWARE"]`` lists the project's. Its errors are those of the enqueuer, and of the attempt. Integrations
register here when apps are loaded, so that the floors below need not know of them, and harm nothing. Around a run they
are outermost; around an insert innermost, so that they see no jobs that a middleware refuses.
Without any, this costs a look at two empty lists. Unlike receivers of signals all act in the context of the insert or
run that they surround.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from django_pgqueue.conf import conf
from django_pgqueue.exceptions import ConfigurationError

if TYPE_CHECKING:
    from django_pgqueue.options import Options
    from django_pgqueue.records import ClaimedJob, Outcome

__all__ = ["NewJobs"]

logger = logging.getLogger("django_pgqueue")

T = TypeVar("T")

Manager = contextlib.AbstractContextManager[Any]


class NewJobs:
    """Jobs of one task that one statement inserts: the argument of ``enqueue()`` of a middleware.

    Attributes:
        task: name of the task.
        options: options of the jobs.
        calls: positional and keyword arguments of each job.
        metadata: of each job, to be changed before the insert: at first that of the caller.
        ids: of the inserted jobs, in the order of the calls; empty before the insert. Of calls with a unique key,
            those that made a new job.
    """

    def __init__(self, task: str, options: "Options", calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> None:
        self.task = task
        self.options = options
        self.calls = calls
        self.metadata: dict[str, Any] = dict(options.metadata)
        self.ids: list[int] = []

    def __repr__(self) -> str:
        return f"<NewJobs of {self.task}: {len(self.calls)}>"


# Around an insert


class Unseen:
    """What surrounds an insert where there is no middleware: nothing."""

    def middleware(self) -> Sequence[Manager]:
        """Return the context managers of the project's middleware, which may refuse the jobs."""
        return ()

    def watchers(self) -> Sequence[Manager]:
        """Return the context managers of integrations, once no middleware has refused the jobs."""
        return ()

    @property
    def metadata(self) -> Mapping[str, Any] | None:
        """What the jobs get in place of the caller's metadata; None: that."""
        return None

    def inserted(self, ids: list[int]) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Surrounded(Unseen):
    """Context managers around one insert.

    Args:
        own: those of the project's middleware.
        watchers: those of integrations; None: to be made once the middleware has been entered.
    """

    def __init__(self, jobs: NewJobs, own: Sequence[Manager], watchers: Sequence[Manager] | None) -> None:
        self._jobs = jobs
        self._own = own
        self._watchers = watchers
        self._entered = contextlib.ExitStack()

    def middleware(self) -> Sequence[Manager]:
        return self._own

    def watchers(self) -> Sequence[Manager]:
        return _watchers_of(self._jobs) if self._watchers is None else self._watchers

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._jobs.metadata  # which may be another object by now

    def inserted(self, ids: list[int]) -> None:
        self._jobs.ids.extend(ids)

    def __enter__(self) -> Self:
        self._entered.enter_context(surrounding([self]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, trace)


@contextlib.contextmanager
def surrounding(inserts: Collection[Unseen]) -> Iterator[None]:
    """Surround one statement that inserts jobs of one task or more; nothing can swallow an error of it.

    All middleware is entered before any integration, so that none of those sees a statement that is refused.
    """
    with contextlib.ExitStack() as entered:
        for insert in inserts:
            for manager in insert.middleware():
                manager.__enter__()
                entered.push(_never_swallowing(manager))
        watchers = [watcher for insert in inserts for watcher in insert.watchers()]
        for watcher in watchers:  # all made by now, so that the span of none is the parent of the next
            watcher.__enter__()
            entered.push(_never_swallowing(watcher))
        yield


def _never_swallowing(manager: Manager) -> Callable[..., None]:
    def leave(*raised: Any) -> None:
        manager.__exit__(*raised)

    return leave


around_inserts: list[Callable[[NewJobs], Manager | None]] = []  # of integrations; None: nothing to do

UNSEEN = Unseen()


def around_insert(task: Any, calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> Unseen:
    """Return what surrounds the insert of jobs of a task, to be entered, alone or by ``surrounding``."""
    own = conf.middleware.enqueue
    if not (own or around_inserts):
        return UNSEEN
    jobs = NewJobs(task.name, task.options, calls)
    if own:
        return Surrounded(jobs, [_InsertManager(one, jobs) for one in own], None)
    watchers = _watchers_of(jobs)
    return Surrounded(jobs, (), watchers) if watchers else UNSEEN


def _watchers_of(jobs: NewJobs) -> list[Manager]:
    """Return the context managers of integrations; one that fails does not prevent the insert."""
    watchers = []
    for hook in around_inserts:
        try:
            watcher = hook(jobs)
        except Exception:
            logger.exception("The enqueueing of %s cannot be watched, and goes on", jobs.task)
        else:
            if watcher is not None:
                watchers.append(watcher)
    return watchers


class _InsertManager:
    """The context manager of a middleware around an insert; notes on its own errors say which it is, and when."""

    def __init__(self, method: Callable[[NewJobs], Any], jobs: NewJobs) -> None:
        self._method = method
        self._jobs = jobs

    def __enter__(self) -> None:
        with _noted(self._method, "before the insert: no job is enqueued"):
            self._manager = context_manager(self._method, self._jobs)
            self._manager.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        number = len(self._jobs.ids)
        when = f"after the insert of {number}: enqueued unless the transaction is rolled back" if number else ""
        with _noted(self._method, when or "after the insert, of no job", of_task=error):
            self._manager.__exit__(kind, error, trace)


# Around a run


class RunHook(Protocol):
    """What an integration does around one run. All is called in the run's own context, which is left with it."""

    def failed(self, error: BaseException, outcome: "Outcome") -> None:
        """Take note of what the task has raised, while that is being handled."""
        ...

    def ended(self, outcome: "Outcome | None") -> None:
        """Take note of what the run came to; None: it was broken off on its way out."""
        ...


around_runs: list[Callable[[Any, "ClaimedJob"], RunHook | None]] = []  # of task and job; None: nothing to do


def add(hook: T, place: list[T]) -> None:
    """Put the hook of an integration into one of the lists, once."""
    if hook not in place:
        place.append(hook)


def call_inside(
    chain: Sequence[Callable[[Any], Any]], job: Any, func: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call the function of a plain task inside of middleware, the first of it outermost."""
    with contextlib.ExitStack[bool]() as stack:
        for method in chain:
            with _noted(method, "before the task"):
                manager = context_manager(method, job)
                manager.__enter__()
            stack.push(_noted_exit(method, manager))
        return func(*args, **kwargs)
    return None  # one of them has swallowed what the function raised


async def acall_inside(
    chain: Sequence[Callable[[Any], Any]], job: Any, func: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Do the same for an ``async def`` task."""
    async with contextlib.AsyncExitStack[bool]() as stack:
        for method in chain:
            with _noted(method, "before the task"):
                manager = context_manager(method, job, is_async=True)
                is_async = hasattr(manager, "__aenter__")
                if is_async:
                    await manager.__aenter__()
                else:
                    manager.__enter__()
            if is_async:
                stack.push_async_exit(_noted_aexit(method, manager))
            else:
                stack.push(_noted_exit(method, manager))
        return await func(*args, **kwargs)
    return None


def _noted_exit(method: Any, manager: Any) -> Callable[..., Any]:
    def leave(kind: Any, error: BaseException | None, trace: Any) -> Any:
        with _noted(method, "after the task", of_task=error):
            return manager.__exit__(kind, error, trace)

    return leave


def _noted_aexit(method: Any, manager: Any) -> Callable[..., Any]:
    async def leave(kind: Any, error: BaseException | None, trace: Any) -> Any:
        with _noted(method, "after the task", of_task=error):
            return await manager.__aexit__(kind, error, trace)

    return leave


# One middleware

RAISED_BY = "Raised by the middleware"


@contextlib.contextmanager
def _noted(method: Any, when: str, *, of_task: BaseException | None = None) -> Iterator[None]:
    """Note on an error of a middleware's own which one has raised it, and when; the traceback shows the note."""
    try:
        yield
    except BaseException as error:
        if error is not of_task:
            error.add_note(f"{RAISED_BY} {_name_of(method)}, {when}.")
        raise


def is_of_middleware(error: BaseException) -> bool:
    """Whether a middleware has raised it, or what Django has made it of, and not what the middleware surrounds."""
    notes = [*getattr(error, "__notes__", ()), *getattr(error.__cause__, "__notes__", ())]
    return any(note.startswith(RAISED_BY) for note in notes)


def context_manager(method: Callable[[Any], Any], argument: Any, *, is_async: bool = False) -> Any:
    """Return the context manager that a middleware makes; raise ConfigurationError if it is none."""
    manager = method(argument)
    if hasattr(manager, "__enter__") or (is_async and hasattr(manager, "__aenter__")):
        return manager
    name = _name_of(method)
    if hasattr(manager, "__aenter__"):
        raise ConfigurationError(
            f"PGQUEUE['MIDDLEWARE'] has {name}, which returns an async context manager. Plain tasks and enqueueing "
            "cannot enter it: return an object that has __enter__ and __exit__ too."
        )
    raise ConfigurationError(f"PGQUEUE['MIDDLEWARE'] has {name}, which returns {manager!r}: it is no context manager.")


def _name_of(method: Any) -> str:
    named = getattr(method, "func", method)  # of a partial
    named = type(named.__self__) if hasattr(named, "__self__") else named
    return f"{named.__module__}.{named.__qualname__}" if hasattr(named, "__qualname__") else repr(named)


# Immediate mode


runners: list[Callable[[str, Collection[int]], None]] = []  # of immediate mode, added when apps are loaded


def run_if_immediate(alias: str, ids: Collection[int]) -> None:
    """Run jobs that have just been enqueued on an alias, once that is committed; where the setting is off, do nothing.

    Raises:
        Exception: as the first one that fails has raised it. The others stay in the queue. None is raised where
            ``PGQUEUE["IMMEDIATE_ERRORS"]`` is ``"log"``.
    """
    if conf.immediate and ids:
        for run in runners:
            run(alias, ids)
