"""Write down what runs came to: a batch of outcomes, each kind by one fenced statement."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django_pgqueue.base.conf import conf
from django_pgqueue.base.records import Fate, Outcome, Receipt
from django_pgqueue.base.states import Reason
from django_pgqueue.db import Database, number_array
from django_pgqueue.lifecycle.dead_letter import DeadLetter, dead_letter
from django_pgqueue.lifecycle.fence import fence
from django_pgqueue.lifecycle.release import release
from django_pgqueue.lifecycle.sql import statement


def write(database: Database, outcomes: Iterable[Outcome]) -> Receipt:
    """Write outcomes in the transaction that is open on ``database``.

    Returns:
        Which were written, which were locked by somebody else and should be tried again, and which are stale: their
        lease is gone and they change nothing.

    Raises:
        django.db.Error: nothing of this batch was written.
    """
    pending = sorted(outcomes, key=lambda outcome: outcome.job.id)
    written = {outcome.job.id for outcome in pending if outcome.fate is Fate.RECORDED}
    for fate, store in STORES.items():
        if batch := [outcome for outcome in pending if outcome.fate is fate]:
            written.update(store(database, batch))
    missing = [outcome for outcome in pending if outcome.job.id not in written]
    locked = _standing(database, missing) if missing else frozenset()
    stale = frozenset(outcome.job.id for outcome in missing) - locked
    return Receipt(frozenset(written), locked, stale)


def finish_alone(database: Database, outcome: Outcome, *, patience_seconds: float = 1.0) -> bool:
    """Remove one job that succeeded, in the transaction of its own handler.

    Args:
        patience_seconds: how long to try while somebody else holds the row.

    Returns:
        False if the lease is gone: the transaction must not commit.
    """
    deadline = time.monotonic() + patience_seconds
    while not _finish(database, [outcome]):
        if not _standing(database, [outcome]) or time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _finish(database: Database, outcomes: Sequence[Outcome]) -> list[int]:
    history = conf.retention_days > 0
    kept = [outcome for outcome in outcomes if history and outcome.job.keep]
    dropped = [outcome for outcome in outcomes if not (history and outcome.job.keep)]
    ids = _ids(database, "finish", fence(outcome.job for outcome in dropped)) if dropped else []
    if kept:
        results = {
            "results": f"[{','.join([outcome.result for outcome in kept])}]",
            "run_seconds": number_array([outcome.run_seconds for outcome in kept]),
        }
        ids += _ids(database, "archive", fence(outcome.job for outcome in kept) | results)
    return ids


def _retry(database: Database, outcomes: Sequence[Outcome]) -> list[int]:
    failures = {
        "delays": number_array([outcome.delay_seconds for outcome in outcomes]),
        "errors": [json.dumps(outcome.error) for outcome in outcomes],
    }
    return _ids(database, "retry", fence(outcome.job for outcome in outcomes) | failures)


def _release(database: Database, outcomes: Sequence[Outcome]) -> list[int]:
    return release(database, [outcome.job for outcome in outcomes], [outcome.delay_seconds for outcome in outcomes])


def _dead_letter(database: Database, outcomes: Sequence[Outcome]) -> list[int]:
    return dead_letter(
        database,
        [
            DeadLetter(outcome.job.id, outcome.job.lease_token, outcome.reason or Reason.EXHAUSTED, outcome.error or {})
            for outcome in outcomes
        ],
    )


STORES = {Fate.SUCCEEDED: _finish, Fate.RETRIED: _retry, Fate.RELEASED: _release, Fate.DIED: _dead_letter}


def _standing(database: Database, outcomes: Sequence[Outcome]) -> frozenset[int]:
    return frozenset(_ids(database, "standing", fence(outcome.job for outcome in outcomes)))


def _ids(database: Database, name: str, parameters: Mapping[str, Any]) -> list[int]:
    return [job_id for (job_id,) in database.rows(statement(name), parameters)]
