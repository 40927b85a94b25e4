"""Tasks for backends that run coroutine functions; not in a module that apps load by themselves."""

from tests.conformance.compat import task
from tests.conformance.trace import note


@task
async def add(a, b=0):
    return a + b


@task
async def fail(message="no luck"):
    note(what="task", label="async fail")
    raise ValueError(message)


@task
async def leave():
    raise SystemExit(3)


@task(takes_context=True)
async def look_at_context(context, *args):
    return {"attempt": context.attempt, "id": context.task_result.id, "args": [*args]}
