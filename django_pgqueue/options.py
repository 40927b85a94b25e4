"""Options of a job, checked when they are set, and those of its task."""

import dataclasses
import datetime as dt
import difflib
import functools
import math
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, TypedDict

from django.conf import settings
from django.utils import timezone

from django_pgqueue.conf import OF_DEFAULTS, LogLevel, conf
from django_pgqueue.exceptions import ConfigurationError, InvalidOption, delay_seconds
from django_pgqueue.keys import (
    Conflict,
    FairOption,
    Limit,
    LimitOption,
    ShardOption,
    Unique,
    UniqueOption,
    fair_by,
    shard_by,
)
from django_pgqueue.retry_policy import DEFAULT_RULE, Backoff, BackoffRule, DiscardOn, Discards
from django_pgqueue.states import (
    HIGHEST_PRIORITY,
    LATEST,
    LONGEST_KEY,
    LONGEST_QUEUE,
    LONGEST_TAG,
    LOWEST_PRIORITY,
    MOST_SNOOZES,
    MOST_TAGS,
    NEVER,
    OnConflict,
)
from django_pgqueue.stored_values import aware
from django_pgqueue.validation import check_flag, check_name, check_seconds, check_whole, check_word, seconds_of

Tags = tuple[str, ...] | list[str] | AbstractSet[str]  # no text, which would be a collection of its characters

TO_START_AFTER, TO_START_AT = "use delay, seconds or a timedelta", "use run_at, a datetime"
MEANT = {  # options of other task queues
    "acks_late": "leave it out: a job whose worker dies is always run again",
    "autoretry_for": "leave it out: any exception is retried, except those of discard_on",
    "bind": "use takes_context=True, or current_job() in the task",
    "concurrency": "use limit=Limit(…), or queues.limit(…) for a queue",
    "countdown": TO_START_AFTER,
    "default_retry_delay": "use backoff",
    "eta": TO_START_AT,
    "ignore_result": "use keep_result",
    "job_timeout": "use timeout",
    "lock": "use limit=Limit(…)",
    "max_retries": "use max_attempts, which counts the first attempt too",
    "queue_name": "use queue",
    "queueing_lock": "use unique",
    "rate_limit": "use queues.limit(…), or pgqueue_queues limit",
    "result_expires": "use keep_for",
    "result_ttl": "use keep_for",
    "retries": "use max_attempts, which counts the first attempt too",
    "retry_backoff": "use backoff",
    "retry_on": "leave it out: any exception is retried, except those of discard_on",
    "run_after": TO_START_AT,
    "schedule_at": TO_START_AT,
    "soft_time_limit": "use timeout",
    "time_limit": "use timeout",
    "ttl": "use expires",
}

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

DEFAULT_ATTEMPTS = 10  # as of jobs that plain SQL inserts


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a job. Set by ``@task`` for every job of a task, by ``using()`` for some.

    Args:
        queue: the named lane, 1 to 128 characters. Default: ``"default"``.
        priority: -100 to 100; larger runs sooner. Default: 0.
        max_attempts: 1 to 32767; the bound on attempts. None: that of ``PGQUEUE["TASK_DEFAULTS"]``, else 10.
        timeout: seconds above 0, or a timedelta, of a year at most, that one attempt may take. None: no limit.
        lease: seconds above 0, or a timedelta, of a year at most, for which a silent worker keeps the job. None:
            ``PGQUEUE["LEASE_SECONDS"]``.
        keep_result: whether the succeeded job is kept in ``succeeded_jobs``, with its result. Default: True.
        keep_for: seconds above 0, or a timedelta, of a year at most, for which it is kept, and never longer than
            ``PGQUEUE["RETENTION_DAYS"]``. None: as long as that. Without effect where it is not kept.
        run_at: earliest start, an aware datetime. None: now.
        delay: in place of ``run_at``, seconds or a timedelta from now, 0 to 100 years, by the database's clock.
        head_start: seconds above 0, up to a year, or a timedelta, by which ``run_at`` of a job that may run at once is
            earlier than now: it goes before jobs of its queue and priority that were enqueued up to that time before
            it, and behind all that have waited longer. None: no head start. Jobs with a ``fair`` key have none.
        expires: until when it may be started: an aware datetime, or seconds or a timedelta after it is due. Later it
            goes to ``dead_jobs`` as ``expired``. None: no limit.
        unique: of all live jobs with the same key there is one: True, all arguments make the key; or names of
            arguments; a function of them; ``Unique``. False and None: no key. Default: None.
        unique_key: the key itself, shared by all tasks. 1 to 500 characters.
        on_conflict: of these calls, in place of that of ``Unique``.
        limit: how many jobs with the same key run at once: ``Limit``, or a list of one. None: any number.
        limit_key: the key itself, shared by all tasks. 1 to 500 characters. How many run: as ``limit`` says, else one.
        fair: within a queue and priority, jobs with different keys take turns: names of arguments, whose values make
            the key, shared by all tasks that make it of the same names; or a function of the arguments.
            None, False: no key.
        fair_key: the key itself. 1 to 500 characters.
        shard_by: where the queue is on several databases, jobs with different keys may be on different ones, those with
            the same key are on one: names of arguments, whose values make the key, shared by all tasks that make it of
            the same names; or a function of the arguments, which returns None for a job without a key. None, False:
            the unique key, or the concurrency key.
        tags: words by which people find the job: up to 20, of 1 to 100 characters each.
        metadata: a JSON object that travels with the job. Never interpreted, but for ``traceparent``.
        database: alias to enqueue on. None: that of the queue in ``PGQUEUE["SHARDS"]``, or of the running job, else
            ``PGQUEUE["DATABASE"]``.

    Raises:
        InvalidOption: a value is out of range or of the wrong type.
    """

    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    timeout: float | dt.timedelta | None = None
    lease: float | dt.timedelta | None = None
    keep_result: bool = True
    keep_for: float | dt.timedelta | None = None
    run_at: dt.datetime | None = None
    delay: float | dt.timedelta | None = None
    head_start: float | dt.timedelta | None = None
    expires: float | dt.datetime | dt.timedelta | None = None
    unique: UniqueOption = None
    unique_key: str | None = None
    on_conflict: Conflict | None = None
    limit: LimitOption = None
    limit_key: str | None = None
    fair: FairOption = None
    fair_key: str | None = None
    shard_by: ShardOption = None
    tags: Tags = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    database: str | None = None

    def __post_init__(self) -> None:
        check_name("queue", self.queue, LONGEST_QUEUE)
        check_whole("priority", self.priority, LOWEST_PRIORITY, HIGHEST_PRIORITY)
        if self.max_attempts is not None:
            check_whole("max_attempts", self.max_attempts, 1, 32767)
        for option in ("timeout", "lease", "keep_for", "head_start"):
            if (seconds := getattr(self, option)) is not None:
                check_seconds(option, seconds)
        check_flag("keep_result", self.keep_result)
        if not isinstance(self.metadata, Mapping):
            raise InvalidOption(f"metadata is a JSON object, not {self.metadata!r}.")
        object.__setattr__(self, "metadata", dict(self.metadata))
        if self.run_at is not None:
            check_instant("run_at", self.run_at)
        if self.delay is not None:
            delay_seconds("delay", self.delay)
            if self.run_at is not None:
                raise InvalidOption(
                    "run_at says when a job starts, and delay how much later than now: give one of them."
                )
        self._check_keys()
        self._check_tags()
        self._check_expires()

    def _check_keys(self) -> None:
        for option in ("unique_key", "limit_key", "fair_key"):
            if (key := getattr(self, option)) is not None:
                check_name(option, key, LONGEST_KEY)
        object.__setattr__(self, "unique", Unique.of("unique", self.unique))
        object.__setattr__(self, "limit", Limit.of("limit", self.limit))
        object.__setattr__(self, "fair", fair_by(self.fair))
        object.__setattr__(self, "shard_by", shard_by(self.shard_by))
        if self.on_conflict is not None:
            check_word("on_conflict", self.on_conflict, tuple(OnConflict))

    def _check_tags(self) -> None:
        tags: Any = self.tags
        if not isinstance(tags, tuple | list | AbstractSet) or len(tags) > MOST_TAGS:
            raise InvalidOption(f"tags are a tuple of {MOST_TAGS} texts at most, as in tags=('import',), not {tags!r}.")
        for tag in tags:
            check_name("Each of tags", tag, LONGEST_TAG)
        object.__setattr__(self, "tags", tuple(dict.fromkeys(tags)))

    def _check_expires(self) -> None:
        if isinstance(self.expires, dt.datetime):
            check_instant("expires", self.expires)
        elif self.expires is not None:
            check_seconds("expires", self.expires)
            seconds = seconds_of(self.expires)
            if self.run_at is not None and not _is_storable(self.run_at + dt.timedelta(seconds=seconds)):
                raise InvalidOption(
                    f"expires is {seconds:g} seconds after run_at, which is later than the year {LATEST.year - 1}: "
                    f"{self.run_at!r}."
                )

    @property
    def needs_control(self) -> bool:
        """Whether a job takes more than a place in its queue."""
        return any(key is not None for key in (self.unique_key, self.limit_key, self.fair_key, self.expires))

    @property
    def attempts_allowed(self) -> int:
        return self.max_attempts or DEFAULT_ATTEMPTS

    @property
    def timeout_seconds(self) -> int:
        return math.ceil(seconds_of(self.timeout)) if self.timeout is not None else 0

    @property
    def lease_seconds(self) -> int:
        return math.ceil(seconds_of(self.lease)) if self.lease is not None else conf.lease_seconds

    @property
    def keep_seconds(self) -> int | None:
        """For how long a succeeded job is kept; None: as long as its partition, or not at all."""
        return math.ceil(seconds_of(self.keep_for)) if self.keep_result and self.keep_for is not None else None

    @functools.cached_property
    def columns(self) -> Mapping[str, Any]:
        """The columns of a job that are the same whenever it is enqueued."""
        return {
            "queue": self.queue,
            "priority": self.priority,
            "delay_seconds": self.delay_seconds,
            "max_attempts": self.attempts_allowed,
            "timeout_seconds": self.timeout_seconds,
            "keep": self.keep_result,
            "keep_seconds": self.keep_seconds,
            "tags": array_of(self.tags) if self.tags else None,
        }

    @property
    def unique_rule(self) -> Unique:
        """What holds of a unique key, whether computed or given by the call."""
        return self.unique if isinstance(self.unique, Unique) else UNIQUE

    @property
    def limit_rule(self) -> Limit:
        """What holds of a limited key, whether computed or given by the call."""
        return self.limit if isinstance(self.limit, Limit) else LIMIT

    @property
    def conflict(self) -> str:
        return self.on_conflict or self.unique_rule.on_conflict

    @property
    def expires_at(self) -> dt.datetime | None:
        return aware(self.expires) if isinstance(self.expires, dt.datetime) else None

    @property
    def expires_seconds(self) -> float | None:
        return None if self.expires is None or isinstance(self.expires, dt.datetime) else seconds_of(self.expires)

    @property
    def due_at(self) -> dt.datetime | None:
        return None if self.run_at is None else aware(self.run_at)

    def due_from(self, enqueued_at: dt.datetime) -> dt.datetime:
        """Return when a job is due that was enqueued at a time."""
        return self.due_at or enqueued_at + dt.timedelta(seconds=self.delay_seconds)

    @property
    def delay_seconds(self) -> float:
        """How much later than now a job without ``run_at`` is due; below 0: its head start."""
        if self.delay is None:
            return -float(seconds_of(self.head_start)) if self.head_start is not None else 0.0
        return float(seconds_of(self.delay))


def array_of(texts: Iterable[str]) -> str:
    """Return an array as PostgreSQL reads it: a text, so that statements take it as a parameter or in JSON."""
    escaped = (text.replace("\\", r"\\").replace('"', r"\"") for text in texts)
    listed = ",".join(f'"{text}"' for text in escaped)
    return f"{{{listed}}}"


UNIQUE, LIMIT = Unique(), Limit()  # of a key that a call gives, where the task says nothing

OF_JOBS = frozenset(option.name for option in dataclasses.fields(Options))


def changed(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with others in place of some: a new ``run_at`` replaces a ``delay``, and the other way round."""
    if options.get("run_at") is not None:
        options = {"delay": None, **options}
    elif options.get("delay") is not None:
        options = {"run_at": None, **options}
    return {**given, **options}


def options_of(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Options:
    """Return the options given to a task, with ``PGQUEUE["TASK_DEFAULTS"]`` for the others.

    Raises:
        InvalidOption: one is out of range or of the wrong type, or the two cannot go together.
        ConfigurationError: ``defaults`` has one that cannot be the default of all tasks.
    """
    if not defaults:
        return Options(**given)
    if unknown := sorted(map(str, set(defaults) - OF_DEFAULTS)):
        raise ConfigurationError(
            f"PGQUEUE['TASK_DEFAULTS'] cannot have {', '.join(unknown)}. Options in it are: "
            f"{', '.join(sorted(OF_DEFAULTS))}."
        )
    merged = {**{name: defaults[name] for name in defaults.keys() & OF_JOBS}, **given}
    if given.get("max_attempts", DEFAULT_ATTEMPTS) is None and "max_attempts" in defaults:
        merged["max_attempts"] = defaults["max_attempts"]
    return Options(**merged)


class SharedOptions(TypedDict, total=False):
    """Options of jobs that both ``@task`` and ``using()`` take, for type checkers."""

    queue: str
    priority: int
    max_attempts: int | None
    timeout: float | dt.timedelta | None
    lease: float | dt.timedelta | None
    keep_result: bool
    keep_for: float | dt.timedelta | None
    unique: UniqueOption
    limit: LimitOption
    fair: FairOption
    shard_by: ShardOption
    head_start: float | dt.timedelta | None
    tags: Tags


class CallOptions(SharedOptions, total=False):
    """The fields of ``Options``, for type checkers: what ``using()`` takes."""

    run_at: dt.datetime | None
    delay: float | dt.timedelta | None
    expires: float | dt.datetime | dt.timedelta | None
    unique_key: str | None
    on_conflict: Conflict | None
    limit_key: str | None
    fair_key: str | None
    metadata: Mapping[str, Any]
    database: str | None


# Options of a task itself: code asks the task for them when a job is run, nothing of them is stored with the job.


class OwnOptions(TypedDict, total=False):
    """The options of a task itself, for type checkers: ``@task`` takes them, ``using()`` does not."""

    backoff: Backoff
    max_snoozes: int | None
    discard_on: DiscardOn
    atomic: bool
    aliases: Iterable[str]
    sensitive_parameters: Iterable[str] | bool
    capture_logs: LogLevel


class TaskOptions(SharedOptions, OwnOptions, total=False):
    """Options of ``@task`` except ``name`` and ``takes_context``, for type checkers."""

    expires: float | dt.timedelta | None


OF_CALLS = CallOptions.__optional_keys__ - TaskOptions.__optional_keys__  # only using() takes them


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OwnOptionsOrNone:
    """``OwnOptions`` as a task of Django's Tasks framework has them; None: not given."""

    backoff: Backoff | None = None
    max_snoozes: int | None = None
    discard_on: DiscardOn | None = None
    atomic: bool | None = None
    aliases: Iterable[str] | None = None
    sensitive_parameters: Iterable[str] | bool | None = None
    capture_logs: LogLevel = None


@dataclass(frozen=True, kw_only=True)
class RetryRules:
    """The options of a task by which a run that raised is tried again or not."""

    backoff: BackoffRule = DEFAULT_RULE  # the wait after a failed attempt
    max_snoozes: int | None = None  # bound on Snooze; None: there is none
    discard_on: Discards = field(default_factory=Discards)  # exceptions after which a job is not tried again

    @classmethod
    def of(cls, rules: "TaskRules", defaults: Mapping[str, Any]) -> "RetryRules":
        """Return those of a task, with ``PGQUEUE["TASK_DEFAULTS"]`` for those not given.

        Raises:
            InvalidOption: a default is out of range or of the wrong type.
        """
        by_default = TaskRules(**{name: defaults[name] for name in defaults.keys() & OF_RETRY})
        found = {name: getattr(rules, name) or getattr(by_default, name) for name in OF_RETRY}
        return cls(**{name: rule for name, rule in found.items() if rule is not None})


OF_RETRY = frozenset(rule.name for rule in dataclasses.fields(RetryRules))


@dataclass(kw_only=True, eq=False, repr=False)
class TaskRules:
    """``OwnOptions`` as a ``TaskDefinition`` has them, checked; None: not given, see ``RetryRules``."""

    backoff: BackoffRule | None = None
    max_snoozes: int | None = None
    discard_on: Discards | None = None
    atomic: bool = False  # the handler's database writes and the removal of its job are one transaction
    aliases: tuple[str, ...] = ()  # former names, which jobs enqueued before a rename still carry
    sensitive_parameters: frozenset[str] | bool = frozenset()  # names of arguments, or of keys in them; True: all
    capture_logs: LogLevel = None  # store log lines from this level on; None: not given

    def __post_init__(self) -> None:
        """Check what ``@task`` was given, and turn it into the form in which it is asked for."""
        if self.backoff is not None:
            self.backoff = BackoffRule.of(self.backoff)
        if self.max_snoozes is not None:
            check_whole("max_snoozes", self.max_snoozes, 1, MOST_SNOOZES)
        if self.discard_on is not None:
            self.discard_on = Discards.of(self.discard_on)
        if self.capture_logs not in (None, False):
            check_word("capture_logs", self.capture_logs, LOG_LEVELS)
        self.aliases = _names("aliases is a tuple of former names, as in ('shop.tasks.old',)", self.aliases)
        self.sensitive_parameters = _sensitive(self.sensitive_parameters)


OF_TASKS = OwnOptions.__optional_keys__
OF_RULES = frozenset(rule.name for rule in dataclasses.fields(TaskRules))


def _sensitive(names: Any) -> frozenset[str] | bool:
    if isinstance(names, bool):
        return names
    return frozenset(_names("sensitive_parameters is True or a tuple of names of arguments, as in ('card',)", names))


def _names(what: str, given: Any) -> tuple[str, ...]:
    """Return names as a tuple; one text is refused, whose characters they would be."""
    is_list = isinstance(given, Iterable) and not isinstance(given, str)
    names = tuple(given) if is_list else ()
    if not is_list or not all(isinstance(name, str) and name for name in names):
        raise InvalidOption(f"{what}, not {given!r}.")
    return names


# Unknown options, and wrong values


def check_known(given: Iterable[str], *, of_tasks: Collection[str] = ()) -> None:
    """Raise InvalidOption where an option is unknown; suggest the one that may be meant."""
    allowed = {*OF_JOBS, *of_tasks} - (OF_CALLS if of_tasks else set())
    if unknown := sorted({*given} - allowed):
        meant = "; ".join(f"{name}{meant_by(name, allowed)}" for name in unknown)
        end = "" if meant.endswith("?") else "."
        raise InvalidOption(f"There is no option {meant}{end} Options are: {', '.join(sorted(allowed))}.")


def meant_by(name: str, allowed: Collection[str]) -> str:
    """Return the hint on an unknown option, to be put behind its name; "" if there is none."""
    if name in MEANT:
        return f": {MEANT[name]}"
    if name in OF_TASKS or name == "name":
        return f": it belongs to the task, @task({name}=…)"
    if name in OF_CALLS:
        return f": it belongs to calls, using({name}=…)"
    near = difflib.get_close_matches(name, allowed, n=1)
    return f": did you mean {near[0]}?" if near else ""


def check_instant(option: str, value: Any) -> None:
    """Raise InvalidOption unless ``value`` is a datetime that PostgreSQL and Python can hold, aware if USE_TZ is on."""
    if not isinstance(value, dt.datetime):
        hint = " From now it is delay=…." if isinstance(value, int | float | dt.timedelta) else ""
        raise InvalidOption(f"{option} is a datetime, not {value!r}.{hint}")
    if not _is_storable(value):
        raise InvalidOption(f"{option} is between the years {NEVER.year} and {LATEST.year}, not {value!r}.")
    if settings.configured and settings.USE_TZ and timezone.is_naive(value):
        raise InvalidOption(
            f"{option} is naive ({value!r}) while USE_TZ is on. Use django.utils.timezone.make_aware()."
        )


def _is_storable(value: dt.datetime) -> bool:
    return NEVER <= (value if timezone.is_aware(value) else value.replace(tzinfo=dt.UTC)) < LATEST
