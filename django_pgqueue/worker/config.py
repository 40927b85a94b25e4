"""Plan of one worker command, made from its options."""

from dataclasses import dataclass

from django_pgqueue.jobs.queue_selector import QueueSelector


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Plan of one worker command; validated by the command before anything starts.

    Args:
        queues: served in this order, as ``QueueSelector`` takes them; empty means all.
        processes: 1 or more.
        concurrency: jobs at once in each process, 1 or more.
        max_jobs: number of finished jobs after which a process is replaced, about; 0 never.
        max_memory_mb: resident memory in MiB above which a process is replaced; 0 never.
        drain: end when nothing is left to do.
        shutdown_timeout_seconds: how long running jobs may go on after SIGTERM.
        listen: whether to LISTEN; without it, or behind a pooler, workers poll.
        name: shown beside host and pid.
        verbosity: Django's; what the children log.
        health_port: where to answer probes over HTTP; 0 nowhere.
        health_file: rewritten once a second while the command is alive; empty: none.
        health_max_age: seconds for which a job may wait that could run, before the command is unready; 0 any.
        metrics_port: where to answer with metrics; 0 nowhere.
    """

    queues: tuple[str, ...] = ()
    processes: int = 1
    concurrency: int = 8
    max_jobs: int = 0
    max_memory_mb: int = 0
    drain: bool = False
    shutdown_timeout_seconds: float = 25.0
    listen: bool = True
    name: str = ""
    verbosity: int = 1
    health_port: int = 0
    health_host: str = "127.0.0.1"
    health_file: str = ""
    health_max_age: float = 0.0
    metrics_port: int = 0
    metrics_host: str = "127.0.0.1"

    @property
    def served(self) -> QueueSelector:
        return QueueSelector.of(self.queues)
