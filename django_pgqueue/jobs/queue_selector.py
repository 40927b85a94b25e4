"""Queues that a worker serves, in their order: names, patterns with ``*``, and exclusions."""

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

ANY = "*"  # any characters, also none; there is no other wildcard
EXCEPT = "-"  # begins a name or pattern that must not be served


class QueueSelector:
    """Queues as ``--queue`` selects them.

    Args:
        wanted: names and patterns, served in strict order; queues that one pattern matches take turns. Empty means all.
        unwanted: names and patterns that are not served, even if ``wanted`` matches them too.
    """

    def __init__(self, wanted: Iterable[str] = (), unwanted: Iterable[str] = ()) -> None:
        self.wanted = tuple(wanted)
        self.unwanted = tuple(unwanted)
        self.place = functools.lru_cache(maxsize=1000)(self._place)

    @classmethod
    def of(cls, words: Sequence[str]) -> Self:
        unwanted = [word.removeprefix(EXCEPT) for word in words if word.startswith(EXCEPT)]
        return cls([word for word in words if not word.startswith(EXCEPT)], unwanted)

    @property
    def names(self) -> tuple[str, ...]:
        """The queues, where each is named; empty where only the database knows which there are."""
        is_open = self.unwanted or any(ANY in pattern for pattern in self.wanted)
        return () if is_open else self.wanted

    def _place(self, queue: str) -> int | None:
        if any(matches(pattern, queue) for pattern in self.unwanted):
            return None
        if not self.wanted:
            return 0
        return next((at for at, pattern in enumerate(self.wanted) if matches(pattern, queue)), None)

    def among(self, queues: Iterable[str]) -> list[str]:
        """Return those of the queues that are served, in strict order; equals stay as they were."""
        places = {queue: place for queue in queues if (place := self.place(queue)) is not None}
        return sorted(places, key=lambda queue: places[queue])

    def parameters(self) -> dict[str, list[str] | None]:
        return {
            "wanted": [like(pattern) for pattern in self.wanted] or None,
            "unwanted": [like(pattern) for pattern in self.unwanted],
        }

    def problems(self) -> Iterator[str]:
        if "" in self.unwanted:
            yield f"{EXCEPT!r} excludes no queue: write its name behind it."
        for pattern in self.wanted:
            if excluded_by := [other for other in self.unwanted if other and matches(other, pattern)]:
                yield f"{pattern!r} is wanted, and excluded by {EXCEPT + excluded_by[0]!r}."
        for at, pattern in enumerate(self.wanted):
            if earlier := [other for other in self.wanted[:at] if matches(other, pattern)]:
                yield f"{pattern!r} comes after {earlier[0]!r}, which serves the same queues: put it first."


def matches(pattern: str, queue: str) -> bool:
    """Whether a queue has this name or fits this pattern; or, if ``queue`` is a pattern, all queues that fit it do."""
    return _expression(pattern).fullmatch(queue) is not None


@functools.lru_cache(maxsize=1000)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split(ANY))), re.DOTALL)


def like(pattern: str) -> str:
    """Return a pattern as LIKE understands it."""
    return re.sub(r"([\\%_])", r"\\\1", pattern).replace(ANY, "%")
