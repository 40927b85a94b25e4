"""Do something to many jobs, slice by slice."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import transaction

from django_pgqueue.conf import conf
from django_pgqueue.lifecycle.left import Left, Why, why_left

Act = Callable[[Sequence[int]], Mapping[str, Sequence[int]]]
"""Does something to a slice of jobs; returns which it was done to, by words that say what."""

MOST_EXAMPLES = 10


@dataclass
class Tally:
    """What has come of it so far."""

    done: Counter[str] = field(default_factory=Counter)
    left: Counter[Left] = field(default_factory=Counter)
    examples: dict[Left, list[int]] = field(default_factory=dict)  # a few ids of each

    def add(self, done: Mapping[str, Sequence[int]], left: Mapping[int, Left]) -> None:
        self.done.update({words: len(ids) for words, ids in done.items()})
        self.left.update(left.values())
        for job_id, why in left.items():
            some = self.examples.setdefault(why, [])
            if len(some) < MOST_EXAMPLES:
                some.append(job_id)


def in_slices(
    slices: Iterable[Sequence[int]], act: Act, why: Why, *, tally: Tally, database: str | None = None
) -> Iterator[Tally]:
    """Act on slice after slice, each in a transaction of its own; yield the tally whenever one has been committed.

    Whatever ends it, and wherever, the slices before stay done, and the tally counts no others.

    Args:
        act: is called inside the transaction.
        why: says why the others of a slice were left alone.

    Raises:
        RuntimeError: a transaction is open.
    """
    alias = database or conf.database
    for ids in slices:
        with transaction.atomic(using=alias, durable=True):
            done = act(ids)
            left = why_left(set(ids).difference(*done.values()), why, database=alias)
        tally.add(done, left)
        yield tally
