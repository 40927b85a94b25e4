"""List jobs, the oldest first, a page at a time."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.core.management.base import CommandError

from django_pgqueue.cli.actions import filter_from
from django_pgqueue.insights.formatting import Row, rows_of
from django_pgqueue.jobs.actions import LIVE
from django_pgqueue.jobs.search import Source, pages
from django_pgqueue.states import DEAD, FINISHED


class Listing(NamedTuple):
    """Rows, and where the next ones begin."""

    rows: list[Row]
    after: int | None  # None: that was all


def listed(options: Mapping[str, Any]) -> Listing:
    """Return up to ``limit`` jobs that match.

    Raises:
        CommandError: the statuses are of more than one table.
    """
    source, kinds = _source(options["status"] or [], options["reason"] or [])
    chosen, limit, database = filter_from(options, kinds), options["limit"], options["database"]
    ids: list[int] = []
    for page in pages(source, chosen, after_id=options["after"], database=database):
        ids += page.ids
        if len(ids) > limit:  # one more tells that there are more
            break
    after = ids[limit - 1] if len(ids) > limit else None
    return Listing(rows_of(source, ids[:limit], database), after)


def _source(statuses: list[str], reasons: list[str]) -> tuple[Source, tuple[str, ...]]:
    apart = {DEAD, FINISHED} & set(statuses)
    if (apart and len(statuses) > 1) or (reasons and statuses not in ([], [DEAD])):
        raise CommandError(
            f"Live, dead and finished jobs are listed apart, and only dead ones have a --reason; not --status "
            f"{', '.join(statuses)}{' with --reason' if reasons else ''}."
        )
    if reasons or apart == {DEAD}:
        return Source.DEAD, tuple(reasons)
    return (Source.FINISHED, ()) if apart else (Source.LIVE, tuple(statuses) or LIVE)
