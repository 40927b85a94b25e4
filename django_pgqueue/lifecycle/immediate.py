"""Run jobs as soon as they are committed, in the process that enqueues them, if ``PGQUEUE["IMMEDIATE"]`` says so."""

from collections.abc import Collection

from django_pgqueue.base.conf import conf


def run_if_immediate(alias: str, ids: Collection[int]) -> None:
    """Run jobs that have just been enqueued on an alias, once that is committed; where the setting is off, do nothing.

    Raises:
        Exception: as the first one that fails has raised it. The others stay in the queue. None is raised where
            ``PGQUEUE["IMMEDIATE_ERRORS"]`` is ``"log"``.
    """
    if conf.immediate and ids:
        from django_pgqueue.testing.immediate import run_soon  # noqa: PLC0415 - a face; for tests and development only

        run_soon(alias, ids)
