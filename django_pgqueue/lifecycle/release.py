"""Give jobs back that were not run, or not to their end, with the attempt restored."""

from collections.abc import Sequence

from django_pgqueue.db.connections import Database, Parameters, number_array
from django_pgqueue.db.queries import statement
from django_pgqueue.lifecycle.fence import Fenced, fence


def release(database: Database, rows: Sequence[Fenced], delays: Sequence[float] | None = None) -> list[int]:
    """Put running jobs back to queued, or to scheduled where there is a delay.

    Args:
        delays: for each row, in seconds, 0 or more. None: no delay for any.

    Returns:
        The ids released. Others were locked, or their lease is gone.
    """
    rows_released = database.rows(statement("release"), release_parameters(rows, delays))
    return [job_id for job_id, _ in rows_released]


def release_parameters(rows: Sequence[Fenced], delays: Sequence[float] | None = None) -> Parameters:
    """Return what ``release.sql`` needs, for those who send it themselves."""
    return fence(rows) | {"delays": number_array([0.0] * len(rows) if delays is None else delays)}
