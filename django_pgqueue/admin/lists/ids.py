"""Ids of jobs, as they stand in requests."""

from collections.abc import Iterable

from django.core.exceptions import BadRequest

LARGEST_ID = 2**63 - 1


def job_ids(texts: Iterable[str]) -> list[int]:
    """Return the ids that stand in a request.

    Raises:
        BadRequest: no job has such an id.
    """
    try:
        ids = list(dict.fromkeys(map(int, texts)))
    except ValueError as error:
        raise BadRequest(f"A job's id is a number: {error}.") from error
    if any(not -LARGEST_ID <= job_id <= LARGEST_ID for job_id in ids):
        raise BadRequest("A job's id has 64 bits.")
    return ids
