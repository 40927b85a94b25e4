"""manage.py pgqueue_stats: queues that are asked for, names, colours, and words that cannot work."""

import re

import pytest
from django.core.management import CommandError

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.models import Queue
from tests.support.stats_command import run, told

pytestmark = pytest.mark.django_db(transaction=True)


def test_chosen_queues_are_told_alone(sql):
    for name in ("a", "b", "c"):
        Queue.objects.create(name=name)
    assert [queue["name"] for queue in told("--queue", "c", "--queue", "a")["queues"]] == ["a", "c"]


def test_unknown_queue_is_told_by_name():
    with pytest.raises(CommandError, match=re.escape("No job has been seen on 'no\\x1bne'.")):
        run("--queue", "no\x1bne")


def test_nothing_to_see():
    assert run().splitlines()[-1] == "There are no queues yet."
    assert told()["queues"] == []


def test_names_do_nothing_to_the_terminal_and_wide_ones_keep_the_columns_straight():
    for name in ("plain", "寿司ツナ", "cafe\u0301", "red\x1b[31m", "turn\u202earound"):
        Queue.objects.create(name=name)
    *_, head, _, _, _, _, _ = lines = run().splitlines()
    shown = {line.split()[0]: len(line) - len(head) for line in lines[-5:]}
    assert shown == {"plain": 0, "寿司ツナ": -4, "cafe\u0301": 1, "red?[31m": 0, "turn?around": 0}
    text = run()
    assert not [character for character in text if not character.isprintable() and character != "\n"]
    assert "寿司ツナ" in text


def test_colours_are_only_where_they_are_wanted(sql):
    enqueue_many(app.noop, [()])
    assert "\x1b[" not in run()
    assert "\x1b[1;31merror" in run("--force-color")
    assert "\x1b[" not in run("--no-color")


def test_reading_that_takes_too_long_is_stopped_and_says_what_helps(settings, queue):
    settings.PGQUEUE = {**settings.PGQUEUE, "ADMIN_TIMEOUT_SECONDS": 0.2}
    with queue.autocommit().transaction():
        queue.autocommit().execute("LOCK TABLE pgqueue_jobs IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(CommandError, match=r"took longer than 0\.2 s and was stopped"):
            run()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "0"], "it looks back 1 to 1440 minutes, not 0"),
        (["--minutes", "many"], "it looks back 1 to 1440 minutes, not many"),
        (["--watch", "0.5"], "the pause is 1 to 3600 seconds, not 0.5"),
        (["--database", "nowhere"], "'nowhere' is not in DATABASES"),
    ],
)
def test_words_that_cannot_work_are_told(words, message):
    with pytest.raises(CommandError, match=re.escape(message)):
        run(*words)
