from benchmarks.peers.tally import count
from django_pgqueue import task


@task
def noop() -> None:
    count()
