"""Due times of schedules. The cases were worked out by hand, by a calendar and the dates of the clock changes."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.schedules.recurrence import NICKNAMES, Recurrence

HOUR = dt.timedelta(hours=1)


def at(text: str) -> dt.datetime:
    """Read "2026-03-29 03:00 +02:00"; without an offset, it is UTC."""
    moment, _, offset = text.partition(" +") if " +" in text else text.partition(" -")
    sign = "-" if " -" in text else "+"
    return dt.datetime.fromisoformat(f"{moment}{sign}{offset or '00:00'}")


# Zone, entry, the instant after which to look, and the next ticks.
CASES = [
    # Fields, ranges, lists, steps and names; 2026 begins on a Thursday.
    ("UTC", "* * * * *", "2026-01-01 00:00", ["2026-01-01 00:01", "2026-01-01 00:02"]),
    ("UTC", "0 * * * *", "2026-01-01 00:00", ["2026-01-01 01:00", "2026-01-01 02:00"]),
    ("UTC", "*/15 * * * *", "2026-01-01 00:50", ["2026-01-01 01:00", "2026-01-01 01:15", "2026-01-01 01:30"]),
    ("UTC", "*/40 * * * *", "2026-01-01 00:00", ["2026-01-01 00:40", "2026-01-01 01:00", "2026-01-01 01:40"]),
    ("UTC", "5/20 * * * *", "2026-01-01 00:00", ["2026-01-01 00:05", "2026-01-01 00:25", "2026-01-01 00:45"]),
    ("UTC", "10-50/20 * * * *", "2026-01-01 00:00", ["2026-01-01 00:10", "2026-01-01 00:30", "2026-01-01 00:50"]),
    ("UTC", "7,3,59 * * * *", "2026-01-01 00:00", ["2026-01-01 00:03", "2026-01-01 00:07", "2026-01-01 00:59"]),
    ("UTC", "30 9 * * *", "2026-01-01 09:29", ["2026-01-01 09:30", "2026-01-02 09:30"]),
    ("UTC", "30 9 * * *", "2026-01-01 09:30", ["2026-01-02 09:30"]),
    ("UTC", "0 9-17/4 * * *", "2026-01-01 00:00", ["2026-01-01 09:00", "2026-01-01 13:00", "2026-01-01 17:00"]),
    ("UTC", "0 22-23,0-1 * * *", "2026-01-01 22:30", ["2026-01-01 23:00", "2026-01-02 00:00", "2026-01-02 01:00"]),
    ("UTC", "0 9 * * mon-fri", "2026-01-02 09:00", ["2026-01-05 09:00", "2026-01-06 09:00"]),
    ("UTC", "0 9 * * MON-FRI", "2026-01-04 12:00", ["2026-01-05 09:00"]),
    ("UTC", "0 9 * * 1,3,5", "2026-01-01 00:00", ["2026-01-02 09:00", "2026-01-05 09:00", "2026-01-07 09:00"]),
    ("UTC", "0 0 * * 0", "2026-01-01 00:00", ["2026-01-04 00:00", "2026-01-11 00:00"]),
    ("UTC", "0 0 * * 7", "2026-01-01 00:00", ["2026-01-04 00:00", "2026-01-11 00:00"]),
    ("UTC", "0 0 * * sun,sat", "2026-01-01 00:00", ["2026-01-03 00:00", "2026-01-04 00:00"]),
    ("UTC", "0 0 * * mon#1", "2026-01-05 00:00", ["2026-02-02 00:00", "2026-03-02 00:00"]),
    ("UTC", "0 0 * * tue#5", "2026-01-01 00:00", ["2026-03-31 00:00", "2026-06-30 00:00"]),
    ("UTC", "0 0 * * 5L", "2026-01-01 00:00", ["2026-01-30 00:00", "2026-02-27 00:00"]),
    ("UTC", "0 0 1 jan,jul *", "2026-01-01 00:00", ["2026-07-01 00:00", "2027-01-01 00:00"]),
    ("UTC", "0 0 1 */4 *", "2026-01-01 00:00", ["2026-05-01 00:00", "2026-09-01 00:00", "2027-01-01 00:00"]),
    ("UTC", "0 12 13 * fri", "2026-02-07 00:00", ["2026-02-13 12:00", "2026-02-20 12:00"]),  # either of the two
    ("UTC", "0 0 */2 * mon", "2026-01-05 00:00", ["2026-01-19 00:00", "2026-02-09 00:00"]),  # both: odd days
    # Ends of months, leap days, ends of years.
    ("UTC", "0 0 31 * *", "2026-01-31 00:00", ["2026-03-31 00:00", "2026-05-31 00:00", "2026-07-31 00:00"]),
    ("UTC", "0 0 30 * *", "2026-01-30 00:00", ["2026-03-30 00:00"]),
    ("UTC", "0 0 L * *", "2026-01-31 00:00", ["2026-02-28 00:00", "2026-03-31 00:00", "2026-04-30 00:00"]),
    ("UTC", "0 0 L 2 *", "2027-01-01 00:00", ["2027-02-28 00:00", "2028-02-29 00:00"]),
    ("UTC", "0 0 LW * *", "2026-01-01 00:00", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-31 00:00"]),
    ("UTC", "0 0 29 2 *", "2026-01-01 00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
    ("UTC", "0 0 29 2 *", "2096-03-01 00:00", ["2104-02-29 00:00"]),  # 2100 has none
    ("UTC", "59 23 31 12 *", "2026-06-01 00:00", ["2026-12-31 23:59", "2027-12-31 23:59"]),
    ("UTC", "*/30 * * * *", "2026-12-31 23:30", ["2027-01-01 00:00", "2027-01-01 00:30"]),
    # Nicknames.
    ("UTC", "@hourly", "2026-01-01 00:59", ["2026-01-01 01:00"]),
    ("UTC", "@daily", "2026-01-01 00:00", ["2026-01-02 00:00"]),
    ("UTC", "@midnight", "2026-01-01 00:00", ["2026-01-02 00:00"]),
    ("UTC", "@weekly", "2026-01-01 00:00", ["2026-01-04 00:00"]),
    ("UTC", "@monthly", "2026-01-01 00:00", ["2026-02-01 00:00"]),
    ("UTC", "@yearly", "2026-01-01 00:00", ["2027-01-01 00:00"]),
    ("UTC", "@Annually", "2026-01-01 00:00", ["2027-01-01 00:00"]),
    # Berlin: 29 March 2026, 02:00 becomes 03:00; 25 October 2026, 03:00 becomes 02:00.
    ("Europe/Berlin", "0 9 * * mon-fri", "2026-03-27 08:00", ["2026-03-30 07:00", "2026-03-31 07:00"]),
    ("Europe/Berlin", "30 2 * * *", "2026-03-28 12:00", ["2026-03-29 03:00 +02:00", "2026-03-30 02:30 +02:00"]),
    ("Europe/Berlin", "0,30 2 * * *", "2026-03-28 12:00", ["2026-03-29 03:00 +02:00", "2026-03-30 02:00 +02:00"]),
    ("Europe/Berlin", "0 1-4 * * *", "2026-03-29 00:30 +01:00",
        ["2026-03-29 01:00 +01:00", "2026-03-29 03:00 +02:00", "2026-03-29 04:00 +02:00"]),
    ("Europe/Berlin", "*/30 * * * *", "2026-03-29 01:00 +01:00",
        ["2026-03-29 01:30 +01:00", "2026-03-29 03:00 +02:00", "2026-03-29 03:30 +02:00"]),
    ("Europe/Berlin", "*/30 2 * * *", "2026-03-28 12:00", ["2026-03-30 02:00 +02:00", "2026-03-30 02:30 +02:00"]),
    ("Europe/Berlin", "30 2 * * *", "2026-10-24 12:00", ["2026-10-25 02:30 +02:00", "2026-10-26 02:30 +01:00"]),
    ("Europe/Berlin", "30 2 * * *", "2026-10-25 02:10 +01:00", ["2026-10-26 02:30 +01:00"]),  # it was an hour ago
    ("Europe/Berlin", "0 2,3 * * *", "2026-10-25 00:00",
        ["2026-10-25 03:00 +01:00", "2026-10-26 02:00 +01:00"]),
    ("Europe/Berlin", "0 * * * *", "2026-10-24 23:30",
        ["2026-10-25 02:00 +02:00", "2026-10-25 02:00 +01:00", "2026-10-25 03:00 +01:00"]),
    ("Europe/Berlin", "*/30 2 * * *", "2026-10-25 02:00 +02:00",
        ["2026-10-25 02:30 +02:00", "2026-10-25 02:00 +01:00", "2026-10-25 02:30 +01:00", "2026-10-26 02:00 +01:00"]),
    ("Europe/Berlin", "0 0 L * *", "2026-10-01 00:00", ["2026-10-30 23:00", "2026-11-29 23:00"]),
    # New York: 8 March 2026, 02:00 becomes 03:00; 1 November 2026, 02:00 becomes 01:00.
    ("America/New_York", "15 2 * * *", "2026-03-07 12:00", ["2026-03-08 03:00 -04:00", "2026-03-09 02:15 -04:00"]),
    ("America/New_York", "0 3 * * *", "2026-03-07 12:00", ["2026-03-08 03:00 -04:00"]),
    ("America/New_York", "30 1 * * *", "2026-10-31 12:00", ["2026-11-01 01:30 -04:00", "2026-11-02 01:30 -05:00"]),
    ("America/New_York", "30 */1 * * *", "2026-11-01 01:00 -04:00",
        ["2026-11-01 01:30 -04:00", "2026-11-01 01:30 -05:00", "2026-11-01 02:30 -05:00"]),
    ("America/New_York", "@daily", "2026-10-31 12:00", ["2026-11-01 00:00 -04:00", "2026-11-02 00:00 -05:00"]),
    # Santiago, in the south: 6 September 2026, midnight becomes 01:00; 5 April 2026, midnight becomes 23:00 of the 4th.
    ("America/Santiago", "@daily", "2026-09-05 12:00", ["2026-09-06 01:00 -03:00", "2026-09-07 00:00 -03:00"]),
    ("America/Santiago", "30 0 * * *", "2026-09-05 12:00", ["2026-09-06 01:00 -03:00", "2026-09-07 00:30 -03:00"]),
    ("America/Santiago", "*/20 1 * * *", "2026-09-05 12:00",
        ["2026-09-06 01:00 -03:00", "2026-09-06 01:20 -03:00", "2026-09-06 01:40 -03:00"]),
    ("America/Santiago", "*/30 1 * * sun", "2026-09-04 12:00", ["2026-09-06 01:00 -03:00", "2026-09-06 01:30 -03:00"]),
    ("America/Santiago", "*/30 0 * * *", "2026-09-05 12:00", ["2026-09-07 00:00 -03:00", "2026-09-07 00:30 -03:00"]),
    ("America/Santiago", "0 * * * sun", "2026-09-05 12:00", ["2026-09-06 01:00 -03:00", "2026-09-06 02:00 -03:00"]),
    ("America/Santiago", "30 23 * * *", "2026-04-04 12:00", ["2026-04-04 23:30 -03:00", "2026-04-05 23:30 -04:00"]),
    ("America/Santiago", "30 * * * *", "2026-04-04 23:00 -03:00",
        ["2026-04-04 23:30 -03:00", "2026-04-04 23:30 -04:00", "2026-04-05 00:30 -04:00"]),
    # Lord Howe, by half an hour: 5 April 2026, 02:00 becomes 01:30; 4 October 2026, 02:00 becomes 02:30.
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03 00:00", ["2026-10-04 02:30 +11:00", "2026-10-05 02:15 +11:00"]),
    ("Australia/Lord_Howe", "45 2 * * *", "2026-10-03 00:00", ["2026-10-04 02:45 +11:00"]),
    ("Australia/Lord_Howe", "*/15 2 * * *", "2026-10-03 03:00 +10:30",
        ["2026-10-04 02:30 +11:00", "2026-10-04 02:45 +11:00", "2026-10-05 02:00 +11:00"]),
    ("Australia/Lord_Howe", "*/20 5 * * *", "2026-10-04 00:00 +10:30",
        ["2026-10-04 05:00 +11:00", "2026-10-04 05:20 +11:00", "2026-10-04 05:40 +11:00"]),
    ("Australia/Lord_Howe", "0 * * * *", "2026-10-04 00:30 +10:30",
        ["2026-10-04 01:00 +10:30", "2026-10-04 03:00 +11:00"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04 03:00 +11:00",
        ["2026-04-05 01:45 +11:00", "2026-04-06 01:45 +10:30"]),
    ("Australia/Lord_Howe", "*/30 * * * *", "2026-04-05 01:00 +11:00",
        ["2026-04-05 01:30 +11:00", "2026-04-05 01:30 +10:30", "2026-04-05 02:00 +10:30"]),
    ("Australia/Lord_Howe", "*/20 5 * * *", "2026-04-05 00:00 +11:00",
        ["2026-04-05 05:00 +10:30", "2026-04-05 05:20 +10:30", "2026-04-05 05:40 +10:30"]),
    ("Australia/Lord_Howe", "*/20 5 * * *", "2026-04-05 01:40 +10:30", ["2026-04-05 05:00 +10:30"]),
    # Kathmandu never changes its clock, and is three quarters of an hour off.
    ("Asia/Kathmandu", "0 0 * * *", "2026-01-01 00:00", ["2026-01-01 18:15", "2026-01-02 18:15"]),
]  # fmt: skip


@pytest.mark.parametrize(("zone", "cron", "after", "expected"), CASES)
def test_entry_ticks_when_it_should(zone, cron, after, expected):
    ticks = Recurrence(cron, None, zone).upcoming(Recurrence(cron, None, zone).next_after(at(after)), len(expected))
    assert ticks == [at(text) for text in expected]


def test_table_of_cases_is_as_long_as_it_should_be():
    assert len(CASES) >= 60
    assert len({zone for zone, *_ in CASES}) >= 5


HOURS = [*map(str, range(24)), "*", "*/2", "*/7", "1-3", "0,23"]
ENTRIES = st.builds(
    "{} {} {} * {}".format,
    st.sampled_from(["0", "30", "45", "0,59", "*/30", "*", "7-50/20"]),
    st.sampled_from(HOURS),
    st.sampled_from(["*", "1", "L", "*/9"]),
    st.sampled_from(["*", "sun", "mon-fri", "6L"]),
)
ZONES = st.sampled_from(sorted({zone for zone, *_ in CASES}))
CHANGES = ["2026-03-08", "2026-03-29", "2026-04-05", "2026-09-06", "2026-10-04", "2026-10-25", "2026-11-01"]
INSTANTS = st.builds(
    lambda day, minutes: at(f"{day} 00:00") + dt.timedelta(minutes=minutes - 1440),
    st.sampled_from(CHANGES),
    st.integers(0, 3 * 1440),
)


@given(ENTRIES, ZONES, INSTANTS, st.integers(0, 200))
def test_ticks_do_not_depend_on_where_one_begins_to_look(cron, zone, instant, minutes):
    """A worker that looks later, as one that has just started, sees the same ticks."""
    rhythm = Recurrence(cron, None, zone)
    later = instant + dt.timedelta(minutes=minutes)
    ticks = [rhythm.next_after(instant)]
    while ticks[-1] <= later:
        ticks.append(rhythm.next_after(ticks[-1]))
    assert ticks == sorted(set(ticks))
    assert rhythm.next_after(later) == ticks[-1]


@given(ENTRIES, ZONES, INSTANTS)
def test_tick_of_an_interval_shows_the_time_that_its_entry_asks_for(cron, zone, instant):
    rhythm = Recurrence(cron, None, zone)
    minutes, hours, *_ = cron.split()
    for tick in rhythm.upcoming(rhythm.next_after(instant), 6):
        shown = tick.astimezone(ZoneInfo(zone))
        skipped = (tick - HOUR).astimezone(ZoneInfo(zone)).utcoffset() != shown.utcoffset()
        if "*" in (minutes[0], hours[0]) or not skipped:
            assert Recurrence(f"{minutes} {hours} * * *", None, "UTC").next_after(
                shown.replace(tzinfo=dt.UTC) - dt.timedelta(minutes=1)
            ) == shown.replace(tzinfo=dt.UTC)


@given(ENTRIES, ZONES, INSTANTS, st.integers(1, 8), st.integers(0, 60 * 24 * 3))
def test_last_ticks_before_an_instant_are_those_that_going_through_all_would_find(cron, zone, first, limit, minutes):
    rhythm = Recurrence(cron, None, zone)
    first = rhythm.next_after(first)
    instant = first + dt.timedelta(minutes=minutes)
    ticks = [first]
    while (tick := rhythm.next_after(ticks[-1])) <= instant:
        ticks.append(tick)
    assert rhythm.due(first, instant, limit=limit) == ticks[-limit:]


def test_years_of_ticks_are_not_gone_through_for_the_last_ones():
    first = at("2000-01-01 00:00")
    last = Recurrence("* * * * *", None, "UTC").due(first, at("2026-06-01 12:34"), limit=2)
    assert last == [at("2026-06-01 12:33"), at("2026-06-01 12:34")]
    assert Recurrence("@yearly", None, "UTC").due(first, at("2026-06-01 12:34"), limit=1) == [at("2026-01-01 00:00")]


def test_interval_keeps_its_step_whatever_was_missed():
    rhythm = Recurrence("", HOUR, "UTC")
    first = at("2026-01-01 00:20")
    assert rhythm.next_after(first) == first + HOUR
    assert rhythm.next_after(first + 5.5 * HOUR, known=first) == first + 6 * HOUR
    assert rhythm.next_after(first + 6 * HOUR, known=first) == first + 7 * HOUR
    assert rhythm.due(first, first, limit=3) == [first]
    assert rhythm.due(first, first + 5.5 * HOUR, limit=3) == [first + number * HOUR for number in (3, 4, 5)]
    assert rhythm.due(first, first + 1.5 * HOUR, limit=3) == [first, first + HOUR]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("0 9 * *", None, "UTC"), r"cron is '0 9 \* \*', which is not five fields\. Write minute, hour, .*@daily"),
        (("0 0 9 * * *", None, "UTC"), r"not five fields.* For seconds, use every=timedelta\(seconds=…\)"),
        (("60 9 * * *", None, "UTC"), r"cron is '60 9 \* \* \*': bad minute\. Write minute"),
        (("0 9 * * mon-", None, "UTC"), "bad day-of-week"),
        (("0 17-9 * * *", None, "UTC"), "bad hour"),
        (("*/0 * * * *", None, "UTC"), "bad minute"),
        (("@reboot", None, "UTC"), "cron is '@reboot', which is not five fields"),
        (("0 0 30 2 *", None, "UTC"), r"cron is '0 0 30 2 \*': bad day-of-month"),
        (("0 0 31 4,6,9,11 *", None, "UTC"), "bad day-of-month"),
        ((5, None, "UTC"), "cron is a text, not 5"),
        (("@daily", None, "Europe/Atlantis"), r"timezone is 'Europe/Atlantis', which is not known.*'Europe/Berlin'"),
        (("@daily", None, "../etc/passwd"), "timezone is"),
        (("@daily", None, "Europe"), "timezone is"),
        (("@daily", None, ""), "timezone is ''"),
        (("@daily", None, None), "timezone is None"),
        (("", None, "UTC"), r"either a cron entry, as '0 9 \* \* mon-fri', or every=timedelta\(hours=1\)"),
        (("@daily", HOUR, "UTC"), "either a cron entry"),
        (
            ("", dt.timedelta(0), "UTC"),
            r"of 1 second to 36500 days, not datetime\.timedelta\(0\)",
        ),
        (("", -HOUR, "UTC"), "every is seconds or a timedelta"),
        (("", dt.timedelta(milliseconds=999), "UTC"), "every is seconds or a timedelta"),
        (("", dt.timedelta(days=36501), "UTC"), "every is seconds or a timedelta"),
        (("", 60, "UTC"), "every is seconds or a timedelta, of 1 second to 36500 days, not 60"),
    ],
)
def test_what_cannot_work_is_named_with_the_remedy(values, message):
    with pytest.raises(InvalidSchedule, match=message):
        Recurrence(*values)


def test_shortest_and_longest_interval_work():
    for every in (dt.timedelta(seconds=1), dt.timedelta(days=36500)):
        assert Recurrence("", every, "UTC").next_after(at("2026-01-01 00:00")) == at("2026-01-01 00:00") + every


@pytest.mark.parametrize("cron", [*NICKNAMES, " @DAILY ", "0\t0  1 * *"])
def test_entry_is_read_as_people_write_it(cron):
    assert Recurrence(cron, None, "UTC").next_after(at("2026-01-01 00:00"))
