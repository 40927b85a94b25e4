"""Search box of a list of jobs: parses what is typed."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from django.db.models import BooleanField, Q
from django.db.models.expressions import RawSQL
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.keyset import LARGEST_ID
from django_pgqueue.jobs.search import is_visible, meant, positions

HELP = _(
    "An id · how the name of a task begins · key:… a unique key · arg:… an argument's value · name=… that of the "
    "argument of that name. Redacted arguments cannot be searched."
)
HELP_WITHOUT_KEY = _(
    "An id · how the name of a task begins · arg:… an argument's value · name=… that of the argument of that name. "
    "Redacted arguments cannot be searched."
)

LONGEST_ID = 20  # characters
IN_KWARGS = "jsonb_path_exists(kwargs, '$.* ? (@ == $one[*])', jsonb_build_object('one', %s::jsonb))"


class Search(NamedTuple):
    """The terms of a search; one of these, or none."""

    id: int | None = None
    task_prefix: str | None = None
    unique_key: str | None = None
    argument: str | None = None
    argument_name: str | None = None
    finds_nothing: bool = False  # no job can be so


def search_of(term: str) -> Search:
    """Read what was typed."""
    term = term.strip()
    if not term:
        return Search()
    if "\0" in term:
        return Search(finds_nothing=True)
    if re.fullmatch(r"-?\d+", term, re.ASCII):
        is_id = len(term) <= LONGEST_ID and abs(int(term)) <= LARGEST_ID
        return Search(id=int(term)) if is_id else Search(finds_nothing=True)
    return _by_words(term)


def _by_words(term: str) -> Search:
    if term.startswith("key:"):
        return Search(unique_key=term.removeprefix("key:").strip())
    if term.startswith("arg:"):
        return Search(argument=term.removeprefix("arg:").strip())
    name, sign, value = term.partition("=")
    if sign and name.strip().isidentifier():
        return Search(argument=value.strip(), argument_name=name.strip())
    return Search(task_prefix=term)


def shows(search: Search) -> Callable[[Any], bool]:
    """Return what says of a job whether the argument may be seen by which it was found."""

    def is_shown(job: Any) -> bool:
        return is_visible(job.task, job.args, job.kwargs, search.argument or "", search.argument_name)

    return is_shown


def has_argument(value: str, name: str | None) -> Q:
    """Return the condition that an argument, or that of the name, is stored with the value."""
    spelled = meant(value)
    if name is None:
        in_args = Q(*(Q(args__contains=[one]) for one in spelled), _connector=Q.OR)
        return in_args | Q(RawSQL(IN_KWARGS, (json.dumps(spelled),), BooleanField()))  # noqa: S611
    in_kwargs = Q(*(Q(kwargs__contains={name: one}) for one in spelled), _connector=Q.OR)
    for task, place in positions(name):
        in_kwargs |= Q(task=task) & Q(*(Q((f"args__{place}", one)) for one in spelled), _connector=Q.OR)
    return in_kwargs
