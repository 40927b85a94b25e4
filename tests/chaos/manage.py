"""As any project's, but it ends with the process that started it: then its standard input, a pipe, is closed."""

import fcntl
import os
import select
import sys


def die_with_the_soak() -> None:
    """Have SIGIO end this process when the pipe is closed; with a thread that waits for it, workers are not forked."""
    pipe = os.open("/proc/self/fd/0", os.O_RDONLY)  # opened for this process alone: other commands have the same pipe
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
    closed = select.poll()
    closed.register(pipe, select.POLLHUP)
    if closed.poll(0):
        sys.exit(1)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from django.core.management import execute_from_command_line

    die_with_the_soak()
    execute_from_command_line(sys.argv)
