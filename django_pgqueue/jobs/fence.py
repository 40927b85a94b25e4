"""Fence of a running job, ``(id, lease_token)``, as parameters of a statement."""

from collections.abc import Sequence
from typing import Any, Protocol

from django_pgqueue.db.connections import number_array


class Fenced(Protocol):
    """Whatever knows a job by its id and the token of one claim; 0 stands for a job that is not running."""

    @property
    def id(self) -> int: ...
    @property
    def lease_token(self) -> int: ...


def fence(rows: Sequence[Fenced]) -> dict[str, Any]:
    """Return the parameters ``ids`` and ``lease_tokens``, in the order of the rows."""
    return {
        "ids": number_array([row.id for row in rows]),
        "lease_tokens": number_array([row.lease_token for row in rows]),
    }
