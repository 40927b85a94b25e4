"""Find the concurrency keys that were forgotten: whoever was to let in their next jobs has crashed or heard nothing."""

from typing import NamedTuple

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement


class Swept(NamedTuple):
    """What a look at some keys has found."""

    keys: list[str]  # a job waits that may be admitted
    last: str  # where to go on; "": that was the end, begin anew


def sweep(database: Database, *, after: str = "", limit: int = 1000) -> Swept:
    """Look at up to ``limit`` keys of waiting jobs, in alphabetical order.

    Args:
        after: begin with the first key behind this one. "": with the first of all.
    """
    [(keys, last, is_more)] = database.rows(statement("sweep"), {"after": after, "limit": limit})
    return Swept(keys, last if is_more else "")
