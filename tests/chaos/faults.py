"""The kinds of faults. Each injects one and returns when it is over; its name is what the journal calls it.

A new kind is a function more, in the group with which it must not overlap.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psycopg

from tests.chaos.cluster import Cluster
from tests.chaos.command import Command
from tests.chaos.journal import Journal
from tests.support.proxy import Proxy


@dataclass(frozen=True)
class Scene:
    """Everything that faults can hit."""

    cluster: Cluster
    proxy: Proxy
    commands: Sequence[Command]
    journal: Journal
    marks: Path
    lease_seconds: int


# One command's processes


def kill_child(scene: Scene, command: Command, draw: Random) -> None:
    """SIGKILL one worker process; its supervisor starts another."""
    if children := command.children():
        victim = draw.choice(children)
        with scene.journal.fault("kill_child", [victim]):
            os.kill(victim, signal.SIGKILL)


def kill_supervisor(scene: Scene, command: Command, draw: Random) -> None:
    """SIGKILL the supervisor; its worker processes end with it."""
    with scene.journal.fault("kill_supervisor", command.children()):
        command.kill_supervisor()


def kill_command(scene: Scene, command: Command, draw: Random) -> None:
    """SIGKILL supervisor and worker processes at once, as when a machine vanishes."""
    with scene.journal.fault("kill_command", command.children()):
        command.kill()


def terminate_command(scene: Scene, command: Command, draw: Random) -> None:
    """SIGTERM, as a deploy does."""
    with scene.journal.fault("terminate_command", command.children()):
        command.terminate()


def stop_child(scene: Scene, command: Command, draw: Random) -> None:
    """Freeze one worker process for longer than a lease, while its supervisor goes on."""
    if children := command.children():
        victim = draw.choice(children)
        with scene.journal.fault("stop_child", [victim]), suppress(ProcessLookupError):
            os.kill(victim, signal.SIGSTOP)
            time.sleep(_longer_than_a_lease(scene, draw))
            os.kill(victim, signal.SIGCONT)


def stop_command(scene: Scene, command: Command, draw: Random) -> None:
    """Freeze all of a command for longer than a lease, as a suspended machine is."""
    with scene.journal.fault("stop_command", command.children()):
        command.send(signal.SIGSTOP)
        time.sleep(_longer_than_a_lease(scene, draw))
        command.send(signal.SIGCONT)


# What all commands share


def terminate_backends(scene: Scene, draw: Random) -> None:
    """End a few sessions of workers, handlers and producers, as an administrator does."""
    with scene.cluster.connect() as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name ~ '^(pgqueue|chaos)' ORDER BY pid"
        ).fetchall()
        victims = draw.sample([pid for (pid,) in found], min(draw.randint(1, 4), len(found)))
        if victims:
            with scene.journal.fault("terminate_backends"):
                connection.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", [victims])


def restart_fast(scene: Scene, draw: Random) -> None:
    """Restart the server in order: it ends all sessions."""
    with scene.journal.fault("restart_fast"):
        scene.cluster.restart("fast")


def restart_immediate(scene: Scene, draw: Random) -> None:
    """Crash the server; it recovers."""
    with scene.journal.fault("restart_immediate"):
        scene.cluster.restart("immediate")


def fail_over(scene: Scene, draw: Random) -> None:
    """Kill the server and promote its replica, which has all that was committed."""
    with scene.journal.fault("fail_over"):
        scene.cluster.fail_over()


def cut(scene: Scene, draw: Random) -> None:
    """Cut all connections that go through the proxy."""
    with scene.journal.fault("cut"):
        scene.proxy.cut()


def stall(scene: Scene, draw: Random) -> None:
    """Let nothing through the proxy for a while, often for longer than a lease; no connection is closed."""
    proxied = [command for command in scene.commands if command.is_proxied]
    with scene.journal.fault("stall", [pid for command in proxied for pid in command.children()]) as fault:
        scene.proxy.stall()
        time.sleep(draw.uniform(0.2, scene.lease_seconds * 1.4))
        fault.pids += [pid for command in proxied for pid in command.children() if pid not in fault.pids]
        scene.proxy.flow()


def _longer_than_a_lease(scene: Scene, draw: Random) -> float:
    return scene.lease_seconds + draw.uniform(0.3, 2.0)


CommandFault = Callable[[Scene, Command, Random], None]
SharedFault = Callable[[Scene, Random], None]

ON_COMMANDS: tuple[CommandFault, ...] = (
    kill_child,
    stop_command,
    kill_supervisor,
    terminate_command,
    kill_command,
    stop_child,
)
"""Hit every command, each on its own, one after the other."""

ON_SERVER: tuple[SharedFault, ...] = (restart_fast, restart_immediate, fail_over)
ON_SESSIONS: tuple[SharedFault, ...] = (terminate_backends,)
ON_NETWORK: tuple[SharedFault, ...] = (cut, stall)
"""Within a group, one after the other; the groups beside each other."""

CONNECTION_TROUBLES = (psycopg.Error, OSError)
"""What a fault may meet where another is at work."""
