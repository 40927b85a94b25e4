"""Tasks that are not imported, unless a setting names this module."""

from tests.app.contract import add, task


@task
def found(value=None):
    return value


@task(backend="dummy")
def lent(value=None):
    return value


def plain() -> None:
    raise AssertionError("this is no task")


__all__ = ["add", "found", "lent", "plain"]
