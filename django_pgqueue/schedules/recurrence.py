"""Due times of a schedule: by a cron entry on the clock of a time zone, or at intervals. Pure arithmetic.

A tick is one due moment. An entry that names minute and hour means a time of day: where the clock is put forward over
it, its tick is the next instant there is, and where the clock is put back, the first of the two. An entry whose minute
or hour begins with ``*`` means an interval: it ticks each time the clock shows a matching time, so in a repeated hour
twice, and in a skipped one not at all.
"""

import datetime as dt
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from django_pgqueue.exceptions import InvalidSchedule

SHORTEST, LONGEST = dt.timedelta(seconds=1), dt.timedelta(days=36500)
MINUTE = dt.timedelta(minutes=1)
HOUR_SECONDS = 3600

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
HOW = (
    "Write minute, hour, day of the month, month and day of the week, as in '0 9 * * mon-fri', "
    f"or one of {', '.join(NICKNAMES)}."
)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The ticks of one schedule.

    Args:
        cron: five fields, or a nickname such as ``@daily``; empty: ``every`` counts.
        every: the time from one tick to the next, a second to 100 years; None: ``cron`` counts.
        timezone: name of the zone whose clock ``cron`` means.

    Raises:
        InvalidSchedule: one of them cannot work; the message names the value and what to write instead.
    """

    cron: str
    every: dt.timedelta | None
    timezone: str

    def __post_init__(self) -> None:
        if bool(self.cron) == (self.every is not None):
            raise InvalidSchedule(
                "A schedule has either a cron entry, as '0 9 * * mon-fri', or every=timedelta(hours=1)."
            )
        zone = _zone(self.timezone)
        if self.every is None:
            _check_cron(self.cron, zone)
        elif not isinstance(self.every, dt.timedelta) or not SHORTEST <= self.every <= LONGEST:
            raise InvalidSchedule(
                f"every is seconds or a timedelta, of 1 second to {LONGEST.days} days, not {self.every!r}."
            )

    def next_after(self, instant: dt.datetime, *, known: dt.datetime | None = None) -> dt.datetime:
        """Return the first tick that is later than ``instant``.

        Args:
            known: any tick of the schedule, from which intervals are counted. None: from ``instant``.
        """
        instant = instant.astimezone(dt.UTC)  # where a timedelta means time that passes
        if self.every is None:
            return next(self._after(instant))
        begun = instant if known is None else known.astimezone(dt.UTC)
        return begun + self.every * ((instant - begun) // self.every + 1)

    def due(self, first: dt.datetime, instant: dt.datetime, *, limit: int) -> list[dt.datetime]:
        """Return the ticks from ``first`` up to ``instant``, in order; of more than ``limit``, the last ones."""
        first, instant = first.astimezone(dt.UTC), instant.astimezone(dt.UTC)
        if self.every is not None:
            count = (instant - first) // self.every + 1
            return [first + self.every * number for number in range(max(count - limit, 0), count)]
        return self._last(first, instant, limit)

    def upcoming(self, first: dt.datetime, number: int) -> list[dt.datetime]:
        ticks = [first]
        while len(ticks) < number:
            ticks.append(self.next_after(ticks[-1]))
        return ticks

    def words(self) -> str:
        """Say a cron entry in English, as "At 02:30 every day"; nothing where there is none."""
        if not self.cron:
            return ""
        said: str = CronSim(_fields(self.cron), dt.datetime(2000, 1, 1, tzinfo=dt.UTC)).explain()
        return said

    def _last(self, first: dt.datetime, instant: dt.datetime, limit: int) -> list[dt.datetime]:
        """Look back twice as far until enough are found: years of ticks are not gone through for the last of them."""
        span = limit * MINUTE
        while True:
            since = max(first - MINUTE, instant - span)
            found = [
                tick for tick in itertools.takewhile(lambda tick: tick <= instant, self._after(since)) if tick >= first
            ]
            if since < first or len(found) >= limit:
                return found[-limit:]
            span *= 2

    def _after(self, instant: dt.datetime) -> Iterator[dt.datetime]:
        for tick in _CronClock(_fields(self.cron), instant.astimezone(_zone(self.timezone))):
            if (utc := tick.astimezone(dt.UTC)) > instant:  # a time of day has passed once its first instant has
                yield utc


def recurrence_of(cron: str, every_seconds: float | None, timezone: str) -> Recurrence:
    """Return the ticks of a schedule as its row has them; raise InvalidSchedule where they cannot be computed."""
    try:
        every = None if every_seconds is None else dt.timedelta(seconds=every_seconds)
    except (OverflowError, ValueError) as error:
        raise InvalidSchedule(f"every is {every_seconds!r} seconds, which is no time: {error}.") from error
    return Recurrence(cron, every, timezone)


class _CronClock(CronSim):
    """A cron entry that goes from hour to hour of its clock, also where one is skipped or repeated by half."""

    def advance_hour(self) -> bool:
        before = self.dt
        if self.dt.tzinfo is not None:  # midnight, to which a new day is set, may be skipped
            self.dt = self.dt.astimezone(dt.UTC).astimezone(self.dt.tzinfo)
        while self.dt.hour not in self.hours:
            self.tick(HOUR_SECONDS - 60 * self.dt.minute - self.dt.second)
            if self.dt.hour == 0:
                break  # another day: month and day come first
        return self.dt != before


def _check_cron(cron: str, zone: ZoneInfo) -> None:
    try:
        next(_CronClock(_fields(cron), dt.datetime(2000, 1, 1, tzinfo=zone)))
    except CronSimError as error:
        raise InvalidSchedule(f"cron is {cron!r}: {str(error).lower()}. {HOW}") from error
    except StopIteration as error:
        raise InvalidSchedule(f"cron is {cron!r}, and no date is like that in 50 years. {HOW}") from error


def _fields(cron: str) -> str:
    if not isinstance(cron, str):
        raise InvalidSchedule(f"cron is a text, not {cron!r}. {HOW}")
    fields = NICKNAMES.get(cron.strip().lower(), cron)
    if len(fields.split()) != 5:  # noqa: PLR2004
        raise InvalidSchedule(
            f"cron is {cron!r}, which is not five fields. {HOW} For seconds, use every=timedelta(seconds=…)."
        )
    return fields


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError, TypeError) as error:
        raise InvalidSchedule(
            f"timezone is {name!r}, which is not known here. Use a name such as 'Europe/Berlin' or 'UTC'; "
            "where none is known, install tzdata."
        ) from error
