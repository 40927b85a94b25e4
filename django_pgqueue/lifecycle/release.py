"""Give jobs back that were not run, or not to their end, with the attempt restored."""

from collections.abc import Iterable

from django_pgqueue.db import Database, number_array
from django_pgqueue.lifecycle.sql import statement


def release(database: Database, fences: Iterable[tuple[int, int, float]]) -> list[int]:
    """Put running jobs back to queued, or to scheduled where a delay is given.

    Args:
        fences: id, lease token and delay in seconds (0 or more) of each.

    Returns:
        The ids released. Others were locked, or their lease is gone.
    """
    ids, lease_tokens, delays = zip(*fences, strict=True)
    parameters = {"ids": number_array(ids), "lease_tokens": number_array(lease_tokens), "delays": number_array(delays)}
    return [job_id for (job_id,) in database.rows(statement("release"), parameters)]
