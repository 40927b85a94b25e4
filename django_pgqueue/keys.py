"""Keys of jobs: what ``unique=``, ``limit=`` and ``fair=`` say, and how keys are computed from arguments."""

import contextlib
import dataclasses
import datetime as dt
import functools
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Self, cast

from django.utils.crypto import salted_hmac

from django_pgqueue.conf import conf, is_sensitive_name
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments, InvalidOption
from django_pgqueue.states import LONGEST_KEY, MOST_SLOTS, OnConflict
from django_pgqueue.validation import (
    check_flag,
    check_name,
    check_seconds,
    check_whole,
    check_word,
    is_text,
    seconds_of,
)

NO_JSON = (TypeError, ValueError, RecursionError, OverflowError)  # raised at a value that cannot be written

Compute = Callable[..., str | None]

KeyBy = Compute | Iterable[str] | None  # a function of the arguments, or names of those whose values make it
By = Compute | tuple[str, ...]  # the same, checked

Until = Literal["end", "start"]
Conflict = Literal["keep", "replace", "later", "earlier"]


class _Rule:
    """A value that says how jobs with the same key behave towards each other; equal to one that says the same."""

    @classmethod
    def of(cls, option: str, given: Any) -> Self | None:
        """Return what an option of ``@task`` or ``using()`` was given as one of this class; None for none.

        A mapping has the fields of the class, as a schedule stores them.

        Raises:
            InvalidOption: it cannot be one.
        """
        if given is None or given is False or isinstance(given, cls):
            return given or None
        if not isinstance(given, Mapping):
            return cls._of_value(option, given)
        fields = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if unknown := sorted(map(str, given.keys() - fields)):
            raise InvalidOption(f"{option} has no {', '.join(unknown)}; it has {', '.join(fields)}.")
        return cls(**given)

    @classmethod
    def _of_value(cls, option: str, given: Any) -> Self | None:
        raise NotImplementedError

    def as_json(self) -> dict[str, Any]:
        """Return the fields that are not as by default, durations in seconds, for ``of`` to read back."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        given = {field.name: getattr(self, field.name) for field in fields}
        return {field.name: seconds_of(given[field.name]) for field in fields if given[field.name] != field.default}

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Unique(_Rule):
    """Of all jobs of a task with the same key there is one: an option of ``@task`` and of ``using()``.

    Keys belong to the task, unless ``group`` names tasks that share them. ``True`` is short for ``Unique()``,
    ``"order_id"`` for ``Unique("order_id")``.

    Args:
        by: names of arguments, whose values make the key, that of a sensitive one as a digest; or a function of the
            arguments that returns it, or None for a job without a key. Default: True, all arguments; the key is a
            digest of them, so that none can be read in it. ``()``: none of them, which is one job of the task.
        until: ``"end"``, the key is held until the job has succeeded or died; ``"start"``, until it starts.
        hold: seconds above 0, or a timedelta, of a year at most, for which the key is held after success too. Not with
            ``until="start"``.
        on_conflict: what becomes of the job that has the key: ``"keep"``, nothing; ``"replace"``, it gets the new
            arguments; ``"later"`` or ``"earlier"``, it runs at the later or earlier of the two times. One that is
            running stays as it is. In any case it is the job that ``enqueue`` returns.
        group: 1 to 500 characters: the key is made of it in place of the task's name, and of values alone, so that all
            tasks that name the group share keys.

    Raises:
        InvalidOption: a value is out of range or of the wrong type.
    """

    by: KeyBy | Literal[True] = True
    _: KW_ONLY
    until: Until = "end"
    hold: float | dt.timedelta | None = None
    on_conflict: Conflict = "keep"
    group: str | None = None

    def __post_init__(self) -> None:
        self._set("by", self.by if self.by is True else _checked_by("unique", self.by, "True, "))
        check_word("until of unique", self.until, ("end", "start"))
        check_word("on_conflict", self.on_conflict, tuple(OnConflict))
        _check_group("unique", self.group)
        if self.hold is not None:
            check_seconds("hold of unique", self.hold)
        if self.hold is not None and self.until == "start":
            raise InvalidOption("hold keeps the key after success, until='start' gives it up before.")

    @classmethod
    def _of_value(cls, option: str, given: Any) -> Self:  # noqa: ARG003 - it knows its option
        return cls(given)

    @property
    def hold_seconds(self) -> int:
        """For how many whole seconds the key is held after success."""
        return math.ceil(seconds_of(self.hold)) if self.hold is not None else 0


@dataclass(frozen=True)
class Limit(_Rule):
    """Maximum of jobs of a task with the same key that run at once: an option of ``@task`` and of ``using()``.

    Keys belong to the task, unless ``group`` names what shares them. The others of a key wait, in order of priority,
    run_at and id.

    Args:
        by: names of arguments, whose values make the key; or a function of the arguments that returns it, or None for
            a job that is not limited. Default: ``()``, one key for all jobs of the task.
        running: 1 to 1000, the maximum number of jobs that run at once, over all workers. Default: 1.
        strict: whether a job keeps its place while it backs off after a failure, so that none of its key passes it.
            Default: False, others go first.
        group: 1 to 500 characters: the key is made of it in place of the task's name, and of values alone, so that all
            tasks that name the group share keys. Each counts by its own ``running``.

    Raises:
        InvalidOption: a value is out of range or of the wrong type.
    """

    by: KeyBy = ()
    _: KW_ONLY
    running: int = 1
    strict: bool = False
    group: str | None = None

    def __post_init__(self) -> None:
        self._set("by", _checked_by("limit", self.by))
        check_whole("running of limit", self.running, 1, MOST_SLOTS)
        check_flag("strict of limit", self.strict)
        _check_group("limit", self.group)

    @classmethod
    def _of_value(cls, option: str, given: Any) -> Self | None:
        limits = given if isinstance(given, list | tuple) else None
        if limits is None or not all(isinstance(one, cls | Mapping) for one in limits):
            raise InvalidOption(
                f"{option} is Limit(…), as in Limit('account_id', running=3), or a list, not {given!r}."
            )
        if len(limits) > 1:
            raise InvalidOption(f"{option} has {len(limits)} limits; a job has one at most.")
        return cls.of(option, limits[0]) if limits else None


UniqueOption = Unique | KeyBy | bool
LimitOption = Limit | Sequence[Limit] | Literal[False] | None  # False: none
FairOption = KeyBy | Literal[False]  # False: none
ShardOption = KeyBy | Literal[False]  # False: none of its own


def as_json(value: Any) -> Any:
    """Return the value of any option in the form that a schedule stores, durations in seconds."""
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    return value.as_json() if isinstance(value, _Rule) else seconds_of(value)


def fair_by(given: FairOption) -> KeyBy:
    """Return what ``fair=`` was given, checked; None for no key. Raise InvalidOption where it makes none."""
    if given is None or given is False:
        return None
    by = _checked_by("fair", given)
    if by == ():
        raise InvalidOption("fair is a function, or names of arguments, not (): of one key there are no turns.")
    return by


def shard_by(given: ShardOption) -> KeyBy:
    """Return what ``shard_by=`` was given, checked; None for no key. Raise InvalidOption where it makes none."""
    if given is None or given is False:
        return None
    by = _checked_by("shard_by", given)
    if by == ():
        raise InvalidOption("shard_by is a function, or names of arguments, not (): one key is on one database.")
    return by


def _checked_by(option: str, by: Any, more: str = "") -> By:
    if callable(by):
        return cast("Compute", by)
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Iterable) else (by,)
    if wrong := [name for name in names if not isinstance(name, str) or not name]:
        raise InvalidOption(f"{option} is {more}a function, or names of arguments, not {wrong[0]!r}.")
    return names


def _check_group(option: str, group: Any) -> None:
    if group is not None:
        check_name(f"group of {option}", group, LONGEST_KEY)


# Computed from arguments


class Keys(NamedTuple):
    """The keys of one job."""

    unique: str | None = None
    concurrency: str | None = None
    fair: str | None = None


def no_key(*_args: Any, **_kwargs: Any) -> str | None:
    """Compute no key."""
    return None


@dataclass(frozen=True, slots=True)
class KeysBy:
    """The functions that compute the keys of a task's jobs from their arguments; their results are checked.

    Each raises InvalidOption where a key is not a text of 1 to 500 characters, and InvalidArguments where it is made of
    values that are no JSON.
    """

    unique: Compute = no_key
    concurrency: Compute = no_key
    fair: Compute = no_key

    @classmethod
    def of(
        cls,
        signature: inspect.Signature,
        owner: str,
        *,
        unique: Unique | None,
        limit: Limit | None,
        fair: KeyBy,
        sensitive_parameters: frozenset[str] | bool = frozenset(),
    ) -> "KeysBy":
        """Make those of a task from its options; raise ConfigurationError for a name of no argument.

        Args:
            owner: what keys of the task alone begin with.
        """
        arguments = _Arguments(signature, sensitive_parameters)
        return cls(
            unique=_key_function("unique", unique.by, arguments, owner, unique.group) if unique else no_key,
            concurrency=_key_function("limit", limit.by, arguments, owner, limit.group) if limit else no_key,
            fair=_key_function("fair", fair, arguments),
        )


NONE = KeysBy()


def shard_function(
    signature: inspect.Signature, by: KeyBy, *, sensitive_parameters: frozenset[str] | bool = frozenset()
) -> Compute:
    """Return the function that computes by which key a job is put on one of several databases, as ``KeysBy``."""
    return _key_function("shard_by", by, _Arguments(signature, sensitive_parameters))


class _Arguments(NamedTuple):
    """The arguments of a task, and which of them are sensitive."""

    signature: inspect.Signature
    sensitive: frozenset[str] | bool  # those that the task declares; True: all

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.signature.parameters)

    def written(self, names: Iterable[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
        """Return the values of these arguments for keys: JSON of their stored form, or a digest of it.

        Raises:
            InvalidArguments: no JSON can be made of one.
        """
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return [self._written(name, bound.arguments[name]) for name in names]

    def _written(self, name: str, value: Any) -> str:
        try:
            stored = stored_form(value)
            text = json.dumps(stored, sort_keys=True)
        except NO_JSON as error:
            raise InvalidArguments(f"Cannot be stored as JSON: {name}: {error}.") from error
        is_sensitive = any(is_sensitive_name(one, declared=self.sensitive) for one in (name, *_keys_within(stored)))
        return _secret_digest(text) if is_sensitive else text


def _key_function(
    option: str, by: KeyBy | Literal[True], arguments: _Arguments, owner: str = "", group: str | None = None
) -> Compute:
    if by is None:
        return no_key
    prefix = owner if group is None else group
    if callable(by):
        return functools.partial(_key_of_function, option, prefix, by)
    if by is True:
        return functools.partial(_key_of_arguments, option, prefix, arguments.names, arguments, _digest)
    names = _names(option, by, arguments.names, prefix)
    return functools.partial(
        _key_of_arguments, option, prefix, names, arguments, _with_names if group is None else _without_names
    )


def _names(option: str, by: Iterable[str], known: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else tuple(by)
    unknown = [name for name in names if name not in known]
    if unknown or (not names and not prefix):
        raise ConfigurationError(
            f"{option} is a function, or names of arguments, of which there are "
            f"{', '.join(known) or 'none'}; not {unknown or by!r}."
        )
    return names


def _key_of_function(option: str, prefix: str, function: Compute, /, *args: Any, **kwargs: Any) -> str | None:
    """Return the key that a function of the task returns, behind the prefix."""
    key = function(*args, **kwargs)
    if key is None:
        return None
    _check_key(option, key)
    if prefix:
        key = f"{prefix}:{key}"
        _check_key(option, key)
    return key


def _key_of_arguments(
    option: str,
    prefix: str,
    names: tuple[str, ...],
    arguments: _Arguments,
    write: Callable[[tuple[str, ...], list[str]], str],
    /,
    *args: Any,
    **kwargs: Any,
) -> str:
    """Return the key made of the values of arguments, behind the prefix; of a digest of them where it is too long."""
    values = arguments.written(names, args, kwargs)
    text = write(names, values) if names else ""
    key = f"{prefix}:{text}" if prefix and text else prefix or text
    if len(key) > LONGEST_KEY:
        key = f"{prefix}:{_digest(names, values)}"
        _check_key(option, key)
    return key


def _check_key(option: str, key: Any) -> None:
    """Raise InvalidOption, without the key itself: it may be made of sensitive arguments."""
    wanted = f"The key of {option} is a text of 1 to {LONGEST_KEY} characters"
    if not isinstance(key, str):
        raise InvalidOption(f"{wanted}, not of the type {type(key).__name__}.")
    if not 1 <= len(key) <= LONGEST_KEY:
        raise InvalidOption(f"{wanted}; this one has {len(key):,}.")
    if not is_text(key):
        raise InvalidOption(f"The key of {option} contains NUL or a lone surrogate, which is not text.")


def stored_form(value: Any) -> Any:
    """Return the value of an argument as it comes back from its row, so that the same job has the same key again.

    A value without a form in JSON is its text: it may be a default, which is not stored. Raises one of ``NO_JSON``.
    """
    if value is None or type(value) in (str, int, bool):
        return value
    if encoder := conf.json_encoder:
        with contextlib.suppress(*NO_JSON):
            return json.loads(json.dumps(value, cls=encoder), parse_float=_stored_float)
    return json.loads(json.dumps(value, default=str), parse_float=_stored_float)


def _stored_float(text: str) -> float:
    """Return a number as ``jsonb`` gives it back: it writes no exponents, and knows no negative zero."""
    return int(Decimal(text)) if "e+" in text else float(text) + 0.0


def _keys_within(stored: Any) -> Iterator[str]:
    """Yield the keys of the mappings in a value, at any depth."""
    pending = [stored]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            yield from one
            pending += one.values()
        elif isinstance(one, list):
            pending += one


def _with_names(names: Iterable[str], values: Iterable[str]) -> str:
    return ",".join(map("{}={}".format, names, values))


def _without_names(_names: Iterable[str], values: Iterable[str]) -> str:
    return ",".join(values)


def _digest(names: Iterable[str], values: Iterable[str]) -> str:
    """Return a text of the same length for all values, in which none can be read."""
    return hashlib.sha256(_with_names(names, values).encode()).hexdigest()


def _secret_digest(value: str) -> str:
    """Return such a text that cannot be found by trying values without the SECRET_KEY of the project."""
    return salted_hmac("django_pgqueue.keys", value, algorithm="sha256").hexdigest()
