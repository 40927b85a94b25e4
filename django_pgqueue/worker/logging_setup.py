"""Log lines of a worker for projects that have not configured any."""

import logging

FORMAT = "%(asctime)s %(levelname)-7s [%(process)d] %(message)s"


def configure(verbosity: int) -> None:
    """Send the worker's log to stderr, unless the project handles the logger ``django_pgqueue`` already.

    What psycopg says of a pipeline that breaks is not printed by Python's last resort: the worker says so itself.

    Args:
        verbosity: Django's. 0: trouble only. 1: starts and ends of processes too. 2: each job too. 3: everything.
    """
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    ours = logging.getLogger("django_pgqueue")
    if ours.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    ours.addHandler(handler)
    ours.setLevel(logging.DEBUG if verbosity > 2 else logging.INFO)  # noqa: PLR2004 - as the docstring says
    logging.getLogger("django_pgqueue.worker").setLevel(logging.WARNING if verbosity == 0 else logging.NOTSET)
    logging.getLogger("django_pgqueue.jobs").setLevel(logging.NOTSET if verbosity > 1 else logging.WARNING)
