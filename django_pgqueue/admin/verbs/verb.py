"""What a verb is: one thing that staff may do to rows, in words and in deed."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django import forms
from django.db.models import Model

from django_pgqueue.jobs import actions

Said = Mapping[str, Any]
"""What was filled in, by field."""


class Change(NamedTuple):
    """Jobs to which one thing was done."""

    model: type[Model]  # where they stand now
    ids: list[Any]
    entry: str  # for the audit log; stored, so not translated
    message: Any  # lazy text with %(count)d
    named_by: str = "task"  # the column that its rows are named by in the audit log
    rows: Sequence[Model] | None = None  # as they were, where they stand nowhere now


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One thing that staff may do.

    Attributes:
        name: the action, and the last part of its address.
        permission: codename; checked when the action is offered, when it is confirmed and when it is done.
        label: what the button says.
        question: lazy text with %(count)d.
        consequence: what will happen, for the confirmation.
        perform: does it, in the open transaction on the queue's database: ids, who, alias, what the form says.
        explain: counts why the other jobs were left alone: ids, alias.
        form: what else has to be known; asked for along with the confirmation.
        is_destructive: whether the button warns.
        many: the same for all jobs that match a filter, in the background; its name is that of this verb.
        question_for_all: what the confirmation of that asks.
    """

    name: str
    permission: str
    label: Any
    question: Any
    consequence: Any
    perform: Callable[[Collection[Any], str, str, Said], list[Change]]
    explain: Callable[[Collection[Any], str], Counter[Any]]
    form: type[forms.Form] | None = None
    is_destructive: bool = False
    many: actions.Verb | None = None
    question_for_all: Any = ""
