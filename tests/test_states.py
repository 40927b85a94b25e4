"""Stored words have labels for people, and bounds are those that the database can keep."""

import datetime as dt

import pytest
from django.db import IntegrityError
from django.utils import translation

from django_pgqueue.models import Job
from django_pgqueue.states import (
    ATTEMPTS,
    DEAD,
    ENDS,
    HIGHEST_PRIORITY,
    LATEST,
    LONGEST_KEY,
    LONGEST_NAME,
    LONGEST_QUEUE,
    LOWEST_PRIORITY,
    NEVER,
    REASONS,
    STATUSES,
    SUCCEEDED,
    CatchUp,
    DeathReason,
    EntryKind,
    JobStatus,
    Status,
    label_of,
)


def test_each_word_has_a_label():
    assert set(STATUSES) == {*Status, DEAD, SUCCEEDED}
    assert set(REASONS) == set(DeathReason)
    assert all(word.label for word in [*Status, *DeathReason, *CatchUp])


@pytest.mark.parametrize(
    ("given", "label"),
    [
        (("running",), "running"),
        (("dead", "unknown_task"), "dead (unknown task)"),
        (("dead", ""), "dead"),
        (("asleep",), "asleep"),
        (("dead", "bored"), "dead (bored)"),
    ],
)
def test_label_says_where_a_job_is_and_why_it_died(given, label):
    assert label_of(*given) == label


def test_label_is_in_the_language_of_who_looks():
    with translation.override("de"):
        label = label_of("dead", "killed")
    assert label != label_of("dead", "killed") == "dead (killed)"


@pytest.mark.parametrize("entry", [{"kind": "asleep"}, {}, {"kind": None}, [], "failed", None, 5], ids=repr)
def test_entry_that_this_code_has_not_written_is_of_no_kind(entry):
    assert EntryKind.of(entry) is None


def test_entry_is_of_the_kind_that_it_names():
    assert [EntryKind.of({"kind": str(kind)}) for kind in EntryKind] == list(EntryKind)
    assert not ATTEMPTS & ENDS


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("column", "longest"),
    [
        ("queue", LONGEST_QUEUE),
        ("unique_key", LONGEST_KEY),
        ("concurrency_key", LONGEST_KEY),
        ("fair_key", LONGEST_KEY),
        ("task", LONGEST_NAME),
        ("backend", LONGEST_NAME),
    ],
)
def test_longest_text_of_the_widest_characters_fits_into_the_indexes_and_no_longer_one(column, longest):
    rest = {
        "unique_key": {"unique_until": "end"},
        "concurrency_key": {"concurrency_limit": 1, "status": Status.LIMITED},
    }.get(column, {})
    values = {"task": "x", **rest}
    # Each another one, as text that repeats itself is compressed.
    text = "".join(chr(0x20000 + (number * 7919) % 40000) for number in range(longest))
    made = Job.objects.create(**values | {column: text})
    assert getattr(Job.objects.get(pk=made.pk), column) == text
    with pytest.raises(IntegrityError, match="pgqueue_jobs_lengths"):
        Job.objects.create(**values | {column: text + "x"})


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("column", "bound", "step"),
    [
        ("priority", LOWEST_PRIORITY, -1),
        ("priority", HIGHEST_PRIORITY, 1),
        ("run_at", NEVER, -dt.timedelta(microseconds=1)),
        ("run_at", LATEST, dt.timedelta(microseconds=1)),
    ],
    ids=["lowest", "highest", "never", "latest"],
)
def test_bound_itself_can_be_stored_and_nothing_beyond_it(column, bound, step):
    made = Job.objects.create(task="x", **{column: bound})
    assert getattr(Job.objects.get(pk=made.pk), column) == bound
    with pytest.raises(IntegrityError, match=f"pgqueue_jobs_{column}"):
        Job.objects.create(task="x", **{column: bound + step})


def test_status_of_a_job_is_that_of_its_row_or_the_table_it_is_in():
    assert set(JobStatus) == {*Status, DEAD, SUCCEEDED}
