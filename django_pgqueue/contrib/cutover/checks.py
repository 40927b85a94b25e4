"""The system check pgqueue_cutover.E001: a stage that there is not."""

from collections.abc import Mapping
from typing import Any

from django.core.checks import CheckMessage, Error, register

from django_pgqueue.contrib.cutover.enqueue import STAGES, flag


@register("pgqueue")
def check_stages(**_: Any) -> list[CheckMessage]:
    """Find every wrong stage of the flag; what a function will return is not known."""
    given = flag()
    if callable(given):
        return []
    return [
        Error(f"PGQUEUE_CUTOVER has {stage!r}.", hint=f"Stages are: {', '.join(STAGES)}.", id="pgqueue_cutover.E001")
        for stage in (given.values() if isinstance(given, Mapping) else [given])
        if stage not in STAGES
    ]
