"""What is run in the benchmarks."""

import socket
import time
from pathlib import Path

from benchmarks.models import Visit
from django_pgqueue import task


@task
def noop(*payload: object) -> None:
    pass


@task
async def anoop(*payload: object) -> None:
    pass


@task
def visit(number: int) -> None:
    Visit.objects.create(path=f"/{number}/")


@task
async def avisit(number: int) -> None:
    await Visit.objects.acreate(path=f"/{number}/")


@task
def rest(microseconds: int) -> None:
    time.sleep(microseconds / 1e6)


@task
def spin(flag: str) -> None:
    """Keep a core busy in pure Python for as long as the file is there."""
    while Path(flag).exists():
        for _ in range(100_000):
            pass


@task
def report_start(address: str) -> None:
    """Send the instant, by the clock that all processes share, to a socket."""
    started = time.monotonic_ns()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(str(started).encode(), address)
