"""Keys of jobs, computed from their arguments."""

import functools
import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.states import LONGEST_KEY
from django_pgqueue.validation import check_name

Compute = Callable[..., str | None]

KeyBy = Compute | Iterable[str] | None  # a function of the arguments, or names of those whose values make it


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

    Each raises InvalidJob where a key is not a text of 1 to 500 characters.
    """

    unique: Compute = no_key
    concurrency: Compute = no_key
    fair: Compute = no_key

    @classmethod
    def of(cls, signature: inspect.Signature, name: str, *, unique: KeyBy, concurrency: KeyBy, fair: KeyBy) -> "KeysBy":
        """Make those of a task from what ``@task`` was given; raise ConfigurationError for a name of no argument."""
        return cls(
            unique=_computing("unique_by", unique, signature, prefix=f"{name}:"),
            concurrency=_computing("concurrency_by", concurrency, signature),
            fair=_computing("fair_by", fair, signature),
        )


NONE = KeysBy()


def _computing(option: str, by: KeyBy, signature: inspect.Signature, *, prefix: str = "") -> Compute:
    if by is None:
        return no_key
    names = () if callable(by) else _names(option, by, signature)
    function = by if callable(by) else functools.partial(_of_arguments, prefix, names, signature)

    def compute(*args: Any, **kwargs: Any) -> str | None:
        key = function(*args, **kwargs)
        if key is not None:
            check_name(f"the key of {option}", key, LONGEST_KEY)
        return key

    return compute


def _names(option: str, by: Iterable[str], signature: inspect.Signature) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else tuple(by)
    unknown = [name for name in names if name not in signature.parameters]
    if unknown or not names:
        raise ConfigurationError(
            f"{option} is a function, or names of arguments, of which there are "
            f"{', '.join(signature.parameters) or 'none'}; not {unknown or by!r}."
        )
    return names


def _of_arguments(
    prefix: str, names: tuple[str, ...], signature: inspect.Signature, /, *args: Any, **kwargs: Any
) -> str:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    values = (f"{name}={json.dumps(bound.arguments[name], sort_keys=True, default=str)}" for name in names)
    return prefix + ",".join(values)
