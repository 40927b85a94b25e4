"""Write outcomes, each kind by one fenced statement."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import (
    Database,
    Parameters,
    PendingResult,
    QueueConnection,
    fence,
    number_array,
)
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter_parameters
from django_pgqueue.jobs.leases import release_parameters
from django_pgqueue.records import COLLECT_RESULT, KEEP_RESULT, MEMBER, RESERVE_KEY, Fate, Outcome, Receipt
from django_pgqueue.states import DeathReason


def write(database: QueueConnection, outcomes: Collection[Outcome]) -> Receipt:
    """Write outcomes, each job's once, in a transaction of their own; nothing of them where that raises."""
    with database.transaction():
        answers = send(database, outcomes)
    return receipt(database, outcomes, answers)


def send(database: QueueConnection, outcomes: Collection[Outcome]) -> list[PendingResult]:
    """Send outcomes in the transaction that is open on ``database``, and do not wait for the answers."""
    return [
        database.send(statement(name), parameters)
        for store, batch in _sorted(list(outcomes))
        for name, parameters in store(batch)
    ]


def receipt(database: Database, outcomes: Collection[Outcome], answers: Sequence[PendingResult]) -> Receipt:
    """Read the answers to ``send``; ask about the outcomes that are not among them, if any."""
    written = [row for answer in answers for row in answer.fetchall()]
    awaited = [row[0] for row in written if row[1]]
    if len(written) == len(outcomes):
        return Receipt(awaited=frozenset(awaited)) if awaited else Receipt()
    recorded = {outcome.job.id: outcome.is_awaited for outcome in outcomes if outcome.fate is Fate.RECORDED}
    known = {*(row[0] for row in written), *recorded}
    missing = [outcome for outcome in outcomes if outcome.job.id not in known]
    locked = still_leased(database, missing) if missing else frozenset()
    awaited += [job_id for job_id, is_awaited in recorded.items() if is_awaited]
    return Receipt(locked, frozenset(outcome.job.id for outcome in missing) - locked, frozenset(awaited))


def recorded(database: Database, outcomes: Collection[Outcome], *, worker_id: int) -> frozenset[int]:
    """Return the ids of outcomes that a commit has written whose answer was lost; the leases of their jobs are gone."""
    parameters = {
        "ids": number_array([outcome.job.id for outcome in outcomes]),
        "attempts": number_array([outcome.job.attempt for outcome in outcomes]),
        "kinds": [_kind(outcome) for outcome in outcomes],
        "reasons": [outcome.reason for outcome in outcomes],
        "errors": [(outcome.error or {}).get("error") for outcome in outcomes],
        "snoozes": number_array([outcome.job.snoozes for outcome in outcomes]),
        "worker_id": worker_id,
    }
    return frozenset(job_id for (job_id,) in database.rows(statement("recorded_outcomes"), parameters))


def _kind(outcome: Outcome) -> str:
    """Return what an outcome leaves behind, in the words of ``recorded_outcomes.sql``."""
    if outcome.fate in (Fate.SUCCEEDED, Fate.REPEATED):
        return "kept" if outcome.job.flags & KEEP_RESULT and conf.retention_days > 0 else "not kept"
    return outcome.fate.word


def finish_alone(database: Database, outcome: Outcome, *, patience_seconds: float = 1.0) -> bool:
    """Remove one job that succeeded, or leave its reserved row, in the transaction of its own handler.

    Tries for ``patience_seconds`` while another session holds the row. Notes at the outcome whether a caller waits for
    it, which is notified after the commit. False if the lease is gone: the transaction must not commit.
    """
    deadline = time.monotonic() + patience_seconds
    [(name, parameters)] = STORES[outcome.fate]([outcome])
    while not (rows := database.rows(statement(name), parameters)):
        if not still_leased(database, [outcome]) or time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    outcome.is_awaited = rows[0][1]
    return True


Named = tuple[str, Parameters]  # name and parameters of a statement

Store = Callable[[Sequence[Outcome]], Iterator[Named]]  # writes outcomes of one fate


def _sorted(outcomes: Sequence[Outcome]) -> Iterator[tuple[Store, Sequence[Outcome]]]:
    succeeded = Fate.SUCCEEDED
    others = [outcome for outcome in outcomes if outcome.fate is not succeeded]
    if outcomes and not others:
        yield _finish, outcomes
        return
    for fate, store in STORES.items():
        if batch := [outcome for outcome in outcomes if outcome.fate is fate]:
            yield store, batch


FINISHING = {
    0: "finish",
    KEEP_RESULT: "archive",
    RESERVE_KEY: "reserve_key",
    KEEP_RESULT | RESERVE_KEY: "archive_and_reserve_key",
    COLLECT_RESULT: "finish_members",
}  # by the flags of the jobs


def _finish(outcomes: Sequence[Outcome]) -> Iterator[Named]:
    telling = RESERVE_KEY | KEEP_RESULT if conf.retention_days > 0 else RESERVE_KEY
    found = {_way(flags, telling) for flags in {outcome.job.flags for outcome in outcomes}}
    for flags in sorted(found):
        batch = outcomes
        if len(found) > 1:
            batch = [outcome for outcome in outcomes if _way(outcome.job.flags, telling) == flags]
        parameters = fence([outcome.job for outcome in batch])
        if flags & (KEEP_RESULT | COLLECT_RESULT):
            parameters |= _results(batch)
        if flags == COLLECT_RESULT:
            parameters["history"] = conf.retention_days > 0
        yield FINISHING[flags], parameters


def _way(flags: int, telling: int) -> int:
    """Return the flags that say which statement ends a job: of most members of workflows that of any other job."""
    is_special = flags & COLLECT_RESULT or (flags & MEMBER and flags & RESERVE_KEY)
    return COLLECT_RESULT if is_special else flags & telling


def _results(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    results = [outcome.result for outcome in outcomes]
    is_null = results.count("null") == len(results)
    progress = [outcome.progress for outcome in outcomes]
    return {
        "results": None if is_null else f"[{','.join([result or 'null' for result in results])}]",
        "left_out": [result is None for result in results] if None in results else None,
        "run_seconds": number_array([outcome.run_seconds for outcome in outcomes]),
        "last_progress": f"[{','.join([told or 'null' for told in progress])}]" if any(progress) else None,
    }


def _repeat(outcomes: Sequence[Outcome]) -> Iterator[Named]:
    yield (
        "repeat",
        fence([outcome.job for outcome in outcomes])
        | _results(outcomes)
        | {
            "delays": number_array([outcome.delay_seconds for outcome in outcomes]),
            "next_ats": [outcome.next_at for outcome in outcomes],
            "history": conf.retention_days > 0,
        },
    )


def _retry(outcomes: Sequence[Outcome]) -> Iterator[Named]:
    yield (
        "retry",
        fence([outcome.job for outcome in outcomes])
        | {
            "delays": number_array([outcome.delay_seconds for outcome in outcomes]),
            "errors": [json.dumps(_entry(outcome)) for outcome in outcomes],
            "is_told": False,  # the slots have sent the signal
        },
    )


def _snooze(outcomes: Sequence[Outcome]) -> Iterator[Named]:
    delays = [outcome.delay_seconds for outcome in outcomes]
    yield "snooze", release_parameters([outcome.job for outcome in outcomes], delays)


def _release(outcomes: Sequence[Outcome]) -> Iterator[Named]:
    delays = [outcome.delay_seconds for outcome in outcomes]
    yield "release", release_parameters([outcome.job for outcome in outcomes], delays)


def _die(outcomes: Sequence[Outcome]) -> Iterator[Named]:
    letters = [
        DeadLetter(outcome.job.id, outcome.job.lease_token, outcome.reason or DeathReason.EXHAUSTED, _entry(outcome))
        for outcome in outcomes
    ]
    yield "dead_letter", dead_letter_parameters(letters)


def _entry(outcome: Outcome) -> dict[str, Any]:
    error = outcome.error or {}
    return error | {"run_seconds": round(outcome.run_seconds, 6)} if outcome.run_seconds else error


STORES = {
    Fate.SUCCEEDED: _finish,
    Fate.REPEATED: _repeat,
    Fate.RETRIED: _retry,
    Fate.SNOOZED: _snooze,
    Fate.RELEASED: _release,
    Fate.DIED: _die,
}


def still_leased(database: Database, outcomes: Sequence[Outcome]) -> frozenset[int]:
    """Return the ids of the jobs among these whose leases are still valid."""
    parameters = fence([outcome.job for outcome in outcomes])
    return frozenset(job_id for (job_id,) in database.rows(statement("still_leased"), parameters))
