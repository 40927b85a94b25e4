"""Immediate mode: run jobs as soon as they are committed, in the process that enqueues them."""

from collections.abc import Callable, Collection

from django_pgqueue.base.conf import conf

runners: list[Callable[[str, Collection[int]], None]] = []
"""What runs the jobs: added when apps are loaded. Before, as without ``PGQUEUE["IMMEDIATE"]``, nothing is run."""


def run_if_immediate(alias: str, ids: Collection[int]) -> None:
    """Run jobs that have just been enqueued on an alias, once that is committed; where the setting is off, do nothing.

    Raises:
        Exception: as the first one that fails has raised it. The others stay in the queue. None is raised where
            ``PGQUEUE["IMMEDIATE_ERRORS"]`` is ``"log"``.
    """
    if conf.immediate and ids:
        for run in runners:
            run(alias, ids)
