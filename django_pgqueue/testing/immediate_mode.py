"""Immediate mode: jobs are run in the process that enqueues them, when their transaction has committed.

A test case never commits, so there its own transaction counts for none: the end of the outermost block that the code
under test has opened is the commit.
"""

import functools
from collections.abc import Callable, Collection
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgqueue.conf import conf
from django_pgqueue.exceptions import JobFailed
from django_pgqueue.jobs.context import find_current
from django_pgqueue.jobs.direct_run import NO_ROW
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.testing.connection import is_of_test
from django_pgqueue.testing.run import Work, work_under_way
from django_pgqueue.testing.selection import Selection

__unittest = True


def run_soon(alias: str, ids: Collection[int]) -> None:
    """Run jobs when their transaction has committed; where a job of their database has enqueued them, after that.

    Jobs of a worker's leave theirs to the workers.
    """
    work = work_under_way.get()
    if work is not None and work.alias == alias:
        work.also(ids)
    elif work is not None or (current := find_current()) is None or current.id == NO_ROW:
        _after_commit(connections[alias], ids)


def _run(alias: str, ids: Collection[int]) -> None:
    raises = conf.immediate_errors == "raise"  # failures are logged in any case
    Work(alias, Selection(QueueSelector(), ids=set(ids)), raises=raises).run_due()


def _after_commit(connection: BaseDatabaseWrapper, ids: Collection[int]) -> None:
    blocks = connection.atomic_blocks
    if all(map(is_of_test, blocks)):
        if blocks or connection.get_autocommit():  # else no hook runs at its commit, and the jobs stay in the queue
            _run(connection.alias, ids)
    elif is_of_test(blocks[0]):
        _at_end_of_block(connection).ids.extend(ids)
    else:
        transaction.on_commit(functools.partial(_run, connection.alias, list(ids)), using=connection.alias)


def _at_end_of_block(connection: BaseDatabaseWrapper) -> "_EndOfBlock":
    """Return the wrapper on a connection that waits for that, one for all jobs, so that they keep their order."""
    for wrapper in connection.execute_wrappers:
        if isinstance(wrapper, _EndOfBlock):
            return wrapper
    end = _EndOfBlock(connection)
    connection.execute_wrappers.insert(0, end)  # not last: execute_wrapper() removes that
    return end


class _EndOfBlock:
    """Sees every statement of a connection, also that by which an atomic block ends, which is none any more by then.

    Source: https://docs.djangoproject.com/en/stable/topics/db/instrumentation/
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.ids: list[int] = []
        self._connection = connection
        self._test = [block for block in connection.atomic_blocks if is_of_test(block)][-1]

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001 - as Django calls it
        if self._test not in self._connection.atomic_blocks:  # no statement has come after a block without a savepoint
            self._connection.execute_wrappers.remove(self)
            return execute(sql, params, many, context)
        result = execute(sql, params, many, context)
        if all(map(is_of_test, self._connection.atomic_blocks)):
            self._connection.execute_wrappers.remove(self)
            if not str(sql).startswith("ROLLBACK"):
                self._run()
        return result

    def _run(self) -> None:
        try:
            _run(self._connection.alias, self.ids)
        except (
            DatabaseError
        ) as error:  # the end of the block would take it for its own, and roll back a released savepoint
            raise JobFailed(f"A job has failed: {type(error).__name__}: {error}") from error
