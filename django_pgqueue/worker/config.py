"""Plan of one worker command, made from its options, and its log where the project has configured none."""

import contextlib
import contextvars
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from django_pgqueue.conf import conf
from django_pgqueue.jobs.queue_selector import QueueSelector

FORMAT = "%(asctime)s %(levelname)-7s [%(process)d] %(message)s"


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Plan of one worker command; validated by the command before anything starts."""

    queues: tuple[str, ...] = ()  # served in this order, as ``QueueSelector`` takes them; empty means all
    database: str | None = None  # the alias whose queue is served; None: ``PGQUEUE["DATABASE"]``
    is_one_of_several: bool = False  # the command serves other databases, too, and its log names this one
    processes: int = 1
    concurrency: int = 8  # jobs at once in each process
    max_jobs: int | None = None  # number of finished jobs after which a process is replaced, about; None: never
    max_memory_mb: int | None = None  # resident memory in MiB above which a process is replaced; None: never
    drain: bool = False  # end when nothing is left to do
    shutdown_timeout_seconds: float = 25.0  # for which running jobs may go on after SIGTERM
    listen: bool = True  # without LISTEN, or behind a pooler, workers poll
    name: str = ""  # shown with host and pid
    verbosity: int = 1  # Django's; what the children log
    health_port: int | None = None  # where to answer probes over HTTP; None: nowhere
    health_host: str = "127.0.0.1"
    health_file: str = ""  # rewritten once a second while the command is alive; empty: none
    health_max_age: float | None = None  # maximum wait in seconds of a due job, for a ready command; None: any
    metrics_port: int | None = None  # where to answer with metrics; None: nowhere
    metrics_host: str = "127.0.0.1"

    @property
    def alias(self) -> str:
        return self.database or conf.database

    @property
    def served(self) -> QueueSelector:
        return QueueSelector.of(self.queues)


def configure_logging(verbosity: int) -> None:
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


_served: contextvars.ContextVar[str] = contextvars.ContextVar("django_pgqueue_served", default="")


@contextlib.contextmanager
def served(alias: str) -> Iterator[None]:
    """Let log lines inside, and those of service threads that are made inside, name this database."""
    token = _served.set(alias)
    try:
        yield
    finally:
        _served.reset(token)


class DatabaseFilter(logging.Filter):
    """Adds the database to log lines, and as the attribute ``database`` to their records.

    Args:
        alias: of threads that are of no database.
    """

    def __init__(self, alias: str = "") -> None:
        super().__init__()
        self._alias = alias

    def filter(self, record: logging.LogRecord) -> bool:
        if alias := _served.get() or self._alias:
            record.database = alias
            shown = alias.replace("%", "%%") if record.args else alias
            record.msg = f"{record.msg} (database {shown})"
        return True


def name_databases(alias: str = "") -> None:
    """Let the worker's log name databases from here on; ``alias``: the only one that this process serves."""
    logger = logging.getLogger("django_pgqueue.worker")
    for one in [one for one in logger.filters if isinstance(one, DatabaseFilter)]:
        logger.removeFilter(one)
    logger.addFilter(DatabaseFilter(alias))
