"""``python -m django_pgqueue.bench.worker``: the ``pgqueue_worker`` command in a process that knows the bench's tasks.

multiprocessing imports the main module of a command again in each process that it spawns. So the children of this one
know the tasks as well, and no other worker ever does.
Source: https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods
"""

import json
import os
import signal
import sys
import threading

import django_pgqueue.bench.tasks  # noqa: F401 - the tasks register themselves


def main() -> None:
    """Run the command as the first line of stdin says; stop it when stdin ends, for then the bench is gone."""
    import django  # noqa: PLC0415 - children import this module and need none of it
    from django.core.management import call_command  # noqa: PLC0415
    from django.db import connections  # noqa: PLC0415

    brief = json.loads(sys.stdin.readline())
    django.setup()
    for alias, name in brief["databases"].items():
        connections.settings[alias]["NAME"] = name
    threading.Thread(target=stop_with_the_bench, daemon=True).start()
    call_command("pgqueue_worker", **brief["options"])


def stop_with_the_bench() -> None:
    """Wait until the other end of stdin is gone; then stop gracefully."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
