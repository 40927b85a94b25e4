"""Guarantees of turns, in a simulation of the rule by which they are given. No database.

Time goes by in jobs. A turn is 1; the head of the queue is its virtual time, as in start-time fair queueing.
Source: https://doi.org/10.1109/90.649569
"""

import heapq
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

IDLE = 1000
"""What a clock gains on virtual time while the queue is empty."""


class Line:
    """One queue at one priority."""

    def __init__(self) -> None:
        self.jobs: list[tuple[int, int, str]] = []  # run_at, id, key
        self.clock = 0
        self.ids = count()

    def turns(self, key: str, number: int) -> list[int]:
        """Return what pgqueue_turns() would: from the head on, or after the key's own last job."""
        head = min(self.clock, self.jobs[0][0]) if self.jobs else self.clock
        last = max((run_at for run_at, _, other in self.jobs if other == key), default=head - 1)
        return [max(head, last + 1) + turn for turn in range(number)]

    def enqueue(self, key: str, number: int) -> None:
        for run_at in self.turns(key, number):
            heapq.heappush(self.jobs, (run_at, next(self.ids), key))

    def claim(self) -> str | None:
        if not self.jobs:
            self.clock += IDLE
            return None
        self.clock += 1
        return heapq.heappop(self.jobs)[2]

    def keys(self) -> set[str]:
        return {key for _, _, key in self.jobs}


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abcde"), st.integers(1, 3)),
        st.tuples(st.just("z"), st.integers(50, 200)),
        st.integers(1, 60),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(events=EVENTS, few=st.integers(1, 10), rate=st.integers(0, 2))
def test_each_of_few_jobs_waits_for_one_of_every_other_key_and_no_more(events, few, rate):
    """Whatever has happened before, and however fast others go on."""
    line = Line()
    for event in events:
        if isinstance(event, tuple):
            line.enqueue(*event)
        else:
            for _ in range(event):
                line.claim()
    line.enqueue("late", few)
    others, before, done = line.keys() - {"late"}, 0, 0
    while done < few:
        for _ in range(rate):
            line.enqueue("z", 1)
            others.add("z")
        if line.claim() == "late":
            done += 1
        else:
            before += 1
        assert before <= (done + 1) * (len(others) + 1)


@settings(max_examples=300, deadline=None)
@given(events=EVENTS, keys=st.integers(2, 5), number=st.integers(5, 30))
def test_keys_that_always_have_jobs_get_as_many_as_each_other(events, keys, number):
    line = Line()
    for event in events:
        if isinstance(event, tuple):
            line.enqueue(*event)
        else:
            for _ in range(event):
                line.claim()
    names = [f"busy {key}" for key in range(keys)]
    for name in names:
        line.enqueue(name, number + 300)
    served = dict.fromkeys(names, 0)
    for _ in range(number * keys):
        key = line.claim()
        if key in served:
            served[key] += 1
        assert max(served.values()) - min(served.values()) <= 1
