"""Settings under ``PGQUEUE``, typed, each with its default and unit. Read when first asked for, never at import.

They are read once: a task and a job ask for several. ``override_settings``, which says so by ``setting_changed``, lets
all be read again.
"""

import contextvars
import datetime as dt
import functools
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, NoReturn, Protocol, Self, TypedDict, TypeVar, overload

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_pgqueue.exceptions import ConfigurationError, JobDoesNotExist
from django_pgqueue.retry_policy import Backoff, DiscardOn

__all__ = ["PgQueueSettings", "QueueSettings", "ShardSettings", "TaskDefaults"]

T = TypeVar("T")


class Setting(Generic[T]):
    """A key of ``settings.PGQUEUE``, called as the attribute.

    Args:
        bounds: of a number, both included; it is a whole one where the first is.
        choices: all values that it may have. Default, of a bool: both.
    """

    def __init__(
        self,
        convert: Callable[[Any], T],
        default: Any,
        *,
        bounds: tuple[float, float] | None = None,
        choices: tuple[Any, ...] = (),
    ) -> None:
        self._convert = convert
        self.default = default
        self.bounds = bounds
        self.choices = (True, False) if convert is bool else choices

    def __set_name__(self, _owner: type, name: str) -> None:
        self.key = name.upper()
        limits = f" From {self.bounds[0]} to {self.bounds[1]}." if self.bounds else ""
        self.__doc__ = f"PGQUEUE[{self.key!r}]. Default: {self.default!r}.{limits}"  # for help(Settings)

    @overload
    def __get__(self, settings: None, _owner: type) -> Self: ...
    @overload
    def __get__(self, settings: "Settings", _owner: type) -> T: ...
    def __get__(self, settings: "Settings | None", _owner: type) -> T | Self:
        if settings is None:
            return self
        known = settings.known  # another thread may replace it meanwhile
        if self.key not in known:
            known[self.key] = self._convert(getattr(django_settings, "PGQUEUE", {}).get(self.key, self.default))
        value: T = known[self.key]
        return value

    def __set__(self, _settings: object, _value: object) -> NoReturn:
        raise AttributeError(f"{self.key} is set in settings.PGQUEUE, and nowhere else.")


def _as_given(value: Any) -> Any:
    return value


def _or_database(alias: str | None) -> str:
    return str(alias or conf.database)


def _class_of(path: str | type | None) -> Any:
    return import_string(path) if isinstance(path, str) else path


LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", False] | None

MakeManager = Callable[[Any], Any]  # to a context manager, from the NewJobs, or from the CurrentJob


class Middleware(NamedTuple):
    """What ``PGQUEUE["MIDDLEWARE"]`` surrounds inserts and runs with, the first outermost."""

    enqueue: tuple[MakeManager, ...]
    run: tuple[MakeManager, ...]


NO_MIDDLEWARE = Middleware((), ())


def _middleware_of(entries: Sequence[Any]) -> Middleware:
    if not entries:
        return NO_MIDDLEWARE
    made = [_object_of(load_middleware(one)) for one in entries]
    return Middleware(
        enqueue=tuple(one.enqueue for one in made if _has(one, "enqueue")),
        run=tuple(one.run if _has(one, "run") else one for one in made if _has(one, "run") or not _has(one, "enqueue")),
    )


def load_middleware(entry: Any) -> Any:
    """Return the class or object with ``enqueue()`` or ``run()`` that an entry is, or a function in place of ``run()``.

    Raises:
        ConfigurationError: it is none of these.
    """
    found = import_string(entry) if isinstance(entry, str) else entry
    if _has(found, "enqueue") or _has(found, "run") or (callable(found) and not isinstance(found, type)):
        return found
    raise ConfigurationError(f"PGQUEUE['MIDDLEWARE'] has {entry!r}, which has no method enqueue() or run().")


def _has(middleware: Any, method: str) -> bool:
    return callable(getattr(middleware, method, None))


_objects: dict[type, Any] = {}  # of middleware, by class
_making = threading.RLock()


def _object_of(found: Any) -> Any:
    """Return the one object of a class, whichever thread asks first: to make it may register a metric, once."""
    if not isinstance(found, type):
        return found
    with _making:
        if found not in _objects:
            _objects[found] = found()
        return _objects[found]


# Names of sensitive arguments

_PASSWORDS = ("password", "passwd", "passphrase", "pwd", "(?<![a-z])pass(?:code)?$")
_SECRETS = ("secret", "token", "bearer", "credential", "authorization", "cookie", "session.?id", "card.?number")
_KEYS = ("api.?key", "private.?key", "access.?key", "database.?url")
_WORDS = tuple(f"(?<![a-z]){word}(?![a-z])" for word in ("pin", "otp", "cvv", "cvc", "iban", "ssn", "jwt", "dsn"))


class QueueSettings(TypedDict, total=False):
    """A queue in ``PGQUEUE["QUEUES"]``; limits as ``queues.limit`` takes them."""

    max_running: int | None
    rate: int | str | None
    burst: int | None
    start_within: float | dt.timedelta | None  # seconds above 0 within which its jobs are to start
    max_backlog: int | None  # queued jobs from which on enqueue() raises QueueFull; 1 to 1,000,000


class TaskDefaults(TypedDict, total=False):
    """``PGQUEUE["TASK_DEFAULTS"]``; options as ``@task`` takes them."""

    queue: str
    priority: int
    max_attempts: int
    timeout: float | dt.timedelta | None
    lease: float | dt.timedelta | None
    keep_result: bool
    keep_for: float | dt.timedelta | None
    expires: float | dt.timedelta | None
    backoff: Backoff
    max_snoozes: int | None
    discard_on: DiscardOn
    capture_logs: LogLevel


OF_DEFAULTS: Final = TaskDefaults.__optional_keys__
NO_DEFAULTS: Final[Mapping[str, Any]] = {}


class ShardSettings(TypedDict, total=False):
    """A database of the queue in ``PGQUEUE["SHARDS"]``, by its alias."""

    number: int  # 1 to 31, for life: the ids of its jobs begin with it; that of DATABASE is 0 unless it is given
    queues: Sequence[str]  # that are on this database, or on several
    slots: Sequence[int]  # of keys, 0 to 1023, whose jobs are put on this one of several databases
    listen: str | None  # as LISTEN_DATABASE
    maintenance: str | None  # as MAINTENANCE_DATABASE


NUMBER_SHIFT: Final = 48
"""Bits of a job's id below the number of its database. Ids of the numbers up to 31 are exact in JavaScript, too."""

LARGEST_NUMBER: Final = 31

LARGEST_OUTBOX: Final = 127

SLOTS: Final = 1024
"""Number of the slots that the keys of jobs are in, where a queue is on several databases."""

OF_SHARDS: Final = ShardSettings.__optional_keys__


class PgQueueSettings(TypedDict, total=False):
    """``PGQUEUE``, for editors and type checkers: ``PGQUEUE: PgQueueSettings = {…}`` in the settings module."""

    DATABASE: str
    MAINTENANCE_DATABASE: str | None
    LISTEN_DATABASE: str | None
    REPLICA_DATABASE: str | None
    SHARDS: Mapping[str, ShardSettings]
    OUTBOXES: Mapping[str, int]
    LEASE_SECONDS: int
    TASK_DEFAULTS: TaskDefaults
    QUEUES: Mapping[str, QueueSettings]
    MAX_PAYLOAD_BYTES: int
    JSON_ENCODER: str | type[json.JSONEncoder] | None
    NOTIFY: bool
    POLL_SECONDS: float
    RETENTION_DAYS: int
    DEAD_RETENTION_DAYS: int | None
    STATS_DAYS: int
    ONCE_DAYS: int
    IDEMPOTENCY_PREFIX: str
    VACUUM_DEAD_ROWS: int
    STATEMENT_TIMEOUT_SECONDS: int
    IMMEDIATE: bool
    IMMEDIATE_ERRORS: Literal["raise", "log"]
    READ_TIMEOUT_SECONDS: float
    METRICS_TOKEN: str | None
    PREPARED_STATEMENTS: bool | None
    MIDDLEWARE: Sequence[Any]
    TRACING: bool
    SENSITIVE_PARAMETERS: Sequence[str]


class Settings:
    """The settings, in the order of the reference."""

    database = Setting(str, "default")
    """Alias of the PostgreSQL database that holds the tables."""

    maintenance_database = Setting(_or_database, None)
    """Alias of the same database by a role that owns the tables. Default: that of ``DATABASE``.

    Used to make and drop partitions, to prune, and to VACUUM.
    """

    listen_database = Setting(_or_database, None)
    """Alias of the same database without a pooler in between, for LISTEN. Default: that of ``DATABASE``."""

    replica_database = Setting(_or_database, None)
    """Alias of a read-only replica, from which the admin reads its lists of jobs. Default: that of ``DATABASE``."""

    shards: Setting[Mapping[str, ShardSettings]] = Setting(_as_given, {})
    """Other databases that hold a queue, by their aliases. Default: none."""

    outboxes: Setting[Mapping[str, int]] = Setting(_as_given, {})
    """Databases whose transactions take jobs of the queue with them, and the number of each. Default: none."""

    lease_seconds = Setting(int, 30, bounds=(3, 86400))
    """Seconds for which a silent worker keeps its jobs. Heartbeats are sent every third of it, or more often."""

    task_defaults: Setting[Mapping[str, Any]] = Setting(_as_given, NO_DEFAULTS)
    """Options of the jobs of all tasks that do not say otherwise. Default: those of ``@task``."""

    queues: Setting[Mapping[str, QueueSettings]] = Setting(_as_given, {})
    """Queues that there are, with their limits. Default: a queue is there once it is named, and has none."""

    max_payload_bytes = Setting(int, 1024 * 1024, bounds=(1, 256 * 1024 * 1024))
    """Largest size of a job's arguments as JSON, and of its result, in bytes."""

    json_encoder: Setting[type | None] = Setting(_class_of, None)
    """Dotted path of a ``json.JSONEncoder`` class for arguments and results. Default: plain JSON only."""

    notify = Setting(bool, True)
    """Whether enqueueing wakes idle workers by NOTIFY; without it they poll."""

    poll_seconds = Setting(float, 1.0, bounds=(0.01, 3600))
    """Interval at which an idle worker process polls for work that was not announced, in seconds."""

    retention_days = Setting(int, 7, bounds=(0, 36500))
    """Days for which succeeded jobs are kept; 0 keeps none."""

    dead_retention_days: Setting[int | None] = Setting(_as_given, None, bounds=(1, 36500))
    """Days after which dead jobs are removed. Default: they stay until they are purged."""

    stats_days = Setting(int, 7, bounds=(1, 36500))
    """Days for which the counts of each minute are kept."""

    once_days = Setting(int, 30, bounds=(1, 36500))
    """Days for which keys of ``once`` are kept; afterwards the same key is new again."""

    idempotency_prefix = Setting(str, "job-")
    """Beginning of ``current_job().idempotency_key``. One for each environment: copies of a database share ids."""

    vacuum_dead_rows = Setting(int, 20_000, bounds=(0, 1_000_000_000))
    """From how many dead rows of the jobs table on workers VACUUM it; 0 leaves it to others."""

    statement_timeout_seconds = Setting(int, 30, bounds=(1, 86400))
    """Upper bound of any statement of a worker's own, in seconds."""

    immediate = Setting(bool, False)
    """Whether jobs run in the process that enqueues them, after its commit; for tests."""

    immediate_errors = Setting(str, "raise", choices=("raise", "log"))
    """Handling of errors of jobs that run so: ``"raise"`` them where the transaction commits, or only ``"log"``."""

    read_timeout_seconds = Setting(float, 2.0, bounds=(0.01, 3600))
    """Upper bound of any statement that reads for people, in seconds: of the admin, the commands and the metrics."""

    metrics_token: Setting[str | None] = Setting(_as_given, None)
    """The token with which a scraper reads the page of metrics without logging in. Default: no token does."""

    prepared_statements: Setting[bool | None] = Setting(_as_given, None, choices=(None, True, False))
    """Whether workers prepare their statements. Default: unless a pooler would mix them up with others'."""

    middleware: Setting[Middleware] = Setting(_middleware_of, ())
    """Dotted paths of classes with methods ``enqueue`` and ``run``, which return context managers around each of both.

    The first is the outermost. A function in place of a class is around runs alone.
    """

    tracing = Setting(bool, True)
    """Whether jobs are traced where OpenTelemetry is installed and its SDK configured."""

    sensitive_parameters: Setting[Sequence[str]] = Setting(_as_given, (*_PASSWORDS, *_SECRETS, *_KEYS, *_WORDS))
    """Regular expressions, in any case, that names of sensitive arguments match.

    Their values are left out of the admin, the log and the history.
    """

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}  # values that were asked for, by their keys
        setting_changed.connect(self._forget)

    @property
    def databases(self) -> tuple[str, ...]:
        """Aliases of all databases that hold a queue; that of ``DATABASE`` is the first."""
        return tuple(dict.fromkeys([self.database, *self.shards]))

    @property
    def queue_databases(self) -> Mapping[str, tuple[str, ...]]:
        """Aliases of the databases that each queue is on, of those that the shards name."""
        known = self.known  # another thread may replace it meanwhile
        found: dict[str, tuple[str, ...]] | None = known.get("queue_databases")
        if found is None:
            found = {}
            for alias, given in self.shards.items():
                for queue in given.get("queues", ()):
                    found[queue] = (*found.get(queue, ()), alias)
            known["queue_databases"] = found
        return found

    def is_on_several(self, queue: str) -> bool:
        """Whether jobs of a queue are put on several databases."""
        return len(self.queue_databases.get(queue, ())) > 1

    def database_for(self, queue: str) -> str:
        """Return the alias of the database that a queue is on, for code that names none; see ``database_here``.

        Of several it is that one, else the first.
        """
        aliases = self.queue_databases.get(queue)
        if aliases is None or (len(aliases) > 1 and self.database_here in aliases):
            return self.database_here
        return aliases[0]

    def database_with(self, slot: int, queue: str) -> str | None:
        """Return the alias of the one of a queue's databases that has a slot, the first where none has ``slots``.

        None where no database has it, also while all slots are being moved.
        """
        aliases, owners = self.queue_databases[queue], self._slot_databases
        alias = aliases[0] if owners is None else owners.get(slot)
        return alias if alias in aliases else None

    @property
    def _slot_databases(self) -> dict[int, str] | None:
        """Aliases by slot; None where ``slots`` is in none of the shards."""
        known = self.known  # another thread may replace it meanwhile
        if "slot_databases" not in known:
            given = {alias: shard["slots"] for alias, shard in self.shards.items() if "slots" in shard}
            known["slot_databases"] = {slot: alias for alias in given for slot in given[alias]} if given else None
        owners: dict[int, str] | None = known["slot_databases"]
        return owners

    @property
    def database_here(self) -> str:
        """Alias for code that names none: that of the job, or of the admin's page, it runs for; else ``DATABASE``."""
        job = running.get()
        return job.database if job is not None else page_database.get() or self.database

    @property
    def replica_here(self) -> str:
        """Alias to read from in place of ``database_here``: that of ``REPLICA_DATABASE`` where it copies that one."""
        here = self.database_here
        return self.replica_database if here == self.database else here

    def number_of(self, alias: str) -> int:
        """Return the number of a database, with which the ids of its jobs begin.

        Raises:
            ConfigurationError: it is not among the shards, or has no number there.
        """
        number = self.shards.get(alias, {"number": 0} if alias == self.database else {}).get("number")
        if not isinstance(number, int) or not 0 <= number <= LARGEST_NUMBER:
            raise ConfigurationError(
                f"PGQUEUE['SHARDS'][{alias!r}] has no number from 0 to {LARGEST_NUMBER}, with which the ids of its "
                "jobs begin. Give it one that no other has had."
            )
        return number

    def database_of(self, job_id: int, default: str | None = None) -> str:
        """Return the alias of the database that a job is on, by its id; ``default`` where there are no shards.

        Raises:
            JobDoesNotExist: it begins with the number of no database.
        """
        if not self.shards:
            return default or self.database_here
        number = max(job_id, 0) >> NUMBER_SHIFT
        if (alias := self.with_number(number)) is None:
            raise JobDoesNotExist(
                f"There is no job {job_id}: it would be on the database with the number {number}, which none in "
                "PGQUEUE['SHARDS'] has."
            )
        return alias

    def with_number(self, number: int) -> str | None:
        """Return the alias of the database with a number, or None."""
        return next((alias for alias in self.databases if self.number_of(alias) == number), None)

    def listen_alias(self, alias: str) -> str:
        """Return the alias by which to LISTEN on the queue of ``alias``."""
        default = self.listen_database if alias == self.database else alias
        return self.shards.get(alias, {}).get("listen") or default

    def maintenance_alias(self, alias: str) -> str:
        """Return the alias whose role owns the tables of ``alias``."""
        default = self.maintenance_database if alias == self.database else alias
        return self.shards.get(alias, {}).get("maintenance") or default

    def _forget(self, *, setting: str, **_: Any) -> None:
        """Read all again when they are asked for, because a setting of Django was changed."""
        if setting == "PGQUEUE":
            self.known = {}


class RunningJob(Protocol):
    """A job that runs: ``CurrentJob``."""

    @property
    def database(self) -> str: ...


running: Final[contextvars.ContextVar[RunningJob | None]] = contextvars.ContextVar("django_pgqueue_job", default=None)
"""The job that the calling code runs for; set by ``jobs.context``."""

page_database: Final[contextvars.ContextVar[str | None]] = contextvars.ContextVar("django_pgqueue_page", default=None)
"""The alias of the database that a page of the admin shows; None: that of ``DATABASE``. Set by ``admin.databases``."""

conf: Final = Settings()

SETTINGS: Final = {one.key: one for one in vars(Settings).values() if isinstance(one, Setting)}
DEFAULTS: Final = {key: one.default for key, one in SETTINGS.items()}


def is_sensitive_name(name: str, *, declared: frozenset[str] | bool = frozenset()) -> bool:
    """Whether the value of an argument, or of a key in one, is sensitive: by its name, or by a path of names.

    Args:
        declared: the names that its task declares, in addition to ``PGQUEUE["SENSITIVE_PARAMETERS"]``; True: all.
    """
    if declared is True or (declared and name in declared):
        return True
    pattern = _pattern(tuple(conf.sensitive_parameters))
    return pattern is not None and pattern.search(name) is not None


@functools.lru_cache(maxsize=8)
def _pattern(expressions: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{one})" for one in expressions), re.IGNORECASE) if expressions else None
