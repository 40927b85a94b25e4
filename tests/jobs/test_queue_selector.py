"""Selection of queues by names and patterns, in their order."""

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.jobs.queue_selector import QueueSelector


def served(text):
    return QueueSelector.of(text.split(",")) if text else QueueSelector()


@pytest.mark.parametrize(
    ("text", "queues", "among"),
    [
        ("", "b a", "b a"),
        ("urgent,default", "default other urgent", "urgent default"),
        ("urgent,*", "b urgent a", "urgent b a"),
        ("mail*,default", "default mail.slow mail mailing e-mail", "mail.slow mail mailing default"),
        ("*.slow", "slow a.slow .slow a.slowly", "a.slow .slow"),
        ("a*b*c", "abc axxbyc ac acb", "abc axxbyc"),
        ("-slow", "a slow slower", "a slower"),
        ("-slow*,urgent,*", "a slow slower urgent", "urgent a"),
        ("a.c", "abc a.c", "a.c"),
        ("a%c_,*\\d", "abcd a%c_ x\\d", "a%c_ x\\d"),
    ],
)
def test_queues_are_served_in_the_order_of_the_first_pattern_they_fit(text, queues, among):
    assert served(text).among(queues.split()) == among.split()


@pytest.mark.parametrize(
    ("text", "names"), [("", ()), ("a,b", ("a", "b")), ("a,b*", ()), ("a,-b", ()), ("*", ()), ("-b", ())]
)
def test_queues_are_known_by_name_where_there_is_no_pattern(text, names):
    assert served(text).names == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,-", "'-' excludes no queue: write its name behind it."),
        ("a,b,-b", "'b' is wanted, and excluded by '-b'."),
        ("mail.*,-mail*", "'mail.*' is wanted, and excluded by '-mail*'."),
        ("*,urgent", "'urgent' comes after '*', which serves the same queues: put it first."),
        ("mail*,mail.*.slow", "'mail.*.slow' comes after 'mail*', which serves the same queues: put it first."),
    ],
)
def test_what_can_have_no_effect_is_named(text, problem):
    assert list(served(text).problems()) == [problem]


@pytest.mark.parametrize("text", ["", "a,b", "urgent,mail*,*", "-slow", "mail*,-mail.slow", "*a*,b*"])
def test_what_makes_sense_is_not_complained_about(text):
    assert list(served(text).problems()) == []


WORDS = st.text(alphabet="a*%_\\.-\n", min_size=1, max_size=4)


@pytest.mark.django_db
@given(words=st.lists(WORDS, max_size=3), queues=st.lists(WORDS, min_size=1, max_size=5, unique=True))
def test_database_and_worker_agree_on_what_is_served(words, queues):
    served = QueueSelector.of(words)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name FROM unnest(%(queues)s::text[]) AS name "
            "WHERE (%(wanted)s::text[] IS NULL OR name LIKE ANY (%(wanted)s::text[])) "
            "AND NOT name LIKE ANY (%(unwanted)s::text[])",
            served.parameters() | {"queues": queues},
        )
        assert {name for (name,) in cursor.fetchall()} == set(served.among(queues))
