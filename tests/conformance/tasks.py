"""Tasks that every backend can declare. What they did stands in the trace."""

import datetime as dt
import os
import time
from pathlib import Path

from tests.conformance.compat import task
from tests.conformance.trace import note


@task
def add(a, b=0):
    return a + b


@task()
def nothing(*args, **kwargs):
    """Take whatever comes."""


@task
def echo(*args, **kwargs):
    return [args, kwargs]


@task(queue_name="mail")
def elsewhere():
    return "elsewhere"


@task(backend="second", queue_name="second")
def second():
    return "second"


@task
def say(label):
    note(what="task", label=label)


@task
def fail(message="no luck"):
    note(what="task", label="fail")
    raise ValueError(message)


class Refused(Exception):
    class Twice(Exception):
        pass


@task
def fail_with_nested_class():
    raise Refused.Twice("twice")


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("cannot be shown")


@task
def fail_oddly(kind):
    match kind:
        case "objects":
            raise ValueError(object(), {1, 2}, dt.datetime.now(dt.UTC))
        case "NUL":
            raise ValueError("NUL \0 in the text")
        case "surrogate":
            raise ValueError("half a pair \ud800")
        case "unprintable":
            raise Odd


@task
def leave():
    raise SystemExit(3)


@task
def interrupt():
    raise KeyboardInterrupt


RETURNED = {
    "nested": {"numbers": (1, 2.5, None, True), "text": b"bytes", "deep": [[{}]]},
    "object": object(),
    "set": {1, 2},
    "datetime": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "NaN": float("nan"),
    "NUL": "\0",
    "surrogate": "\ud800",
    "int key": {1: "a"},
}


@task
def give(kind):
    return RETURNED[kind]


@task(takes_context=True)
def look_at_context(context, *args, **kwargs):
    result = context.task_result
    return {
        "attempt": context.attempt,
        "id": result.id,
        "status": str(result.status),
        "task": result.task.name,
        "args": [*args],
        "kwargs": kwargs,
        "result_args": result.args,
        "result_kwargs": result.kwargs,
        "worker_ids": result.worker_ids,
        "has_started": result.started_at is not None,
    }


@task
def enqueue_another(label):
    say.enqueue(label)


@task(takes_context=True)
def wait_for(context, path):
    """Run until there is a file at this path; the attempt is in the notes, and returned."""
    note(what="task", label="begin", attempt=context.attempt)
    deadline = time.monotonic() + 600
    while not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    note(what="task", label="end", attempt=context.attempt)
    return context.attempt


@task(takes_context=True)
def wait_for_at_first(context, path):
    """The same, but do not wait in a second attempt."""
    if context.attempt == 1:
        return wait_for.func(context, path)
    note(what="task", label="end", attempt=context.attempt)
    return context.attempt


@task
def count(number):
    note(what="task", label=str(number))
    return os.getpid()


def plain():
    """Not a task."""


async def plain_async():
    """Not a task either."""


def plain_with_context(context):
    pass


def plain_without_parameters():
    pass


class Tool:
    def method(self):
        pass

    def __call__(self):
        pass


@task
def vanish():
    """A test takes it out of this module."""
