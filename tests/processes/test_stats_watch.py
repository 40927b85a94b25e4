"""pgqueue_stats --watch in a pseudo-terminal, as a user has it."""

import json
import os
import signal
import subprocess
import sys

import pytest
from django.db import connections

import tests.app.tasks as app
from django_pgqueue.insights.formatting import width
from django_pgqueue.management.commands.pgqueue_stats import CLEAR
from django_pgqueue.models import Queue
from tests.support.proxy import Detour
from tests.support.terminal import CTRL_C, Terminal
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.workers import MANAGE, database_url

pytestmark = pytest.mark.django_db(transaction=True)

STATS = (sys.executable, str(MANAGE), "pgqueue_stats")


@pytest.fixture
def open_terminal(transactional_db):
    opened = []

    def begin(*options, wide=120, high=30, **environment):
        environment = {"DATABASE_URL": database_url(), **environment}
        opened.append(Terminal([*STATS, "--watch", "1", *options], environment=environment, wide=wide, high=high))
        return opened[-1]

    yield begin
    for terminal in opened:
        sys.stdout.write(terminal.text()[-2000:])
        terminal.close()


def shows(terminal: Terminal, words: str):
    eventually(lambda: words in terminal.picture() or must_live(terminal))


def must_live(terminal: Terminal) -> bool:
    assert terminal.process.poll() is None, terminal.text()
    return False


def fits(terminal: Terminal, wide: int, high: int) -> bool:
    lines = terminal.pictures()[-1]
    return len(lines) < high and all(width(line) <= wide for line in lines)


def test_queue_is_shown_anew_until_ctrl_c(open_terminal):
    terminal = open_terminal("--no-color")
    shows(terminal, "There are no queues yet.")
    assert "every 1 s, the last 5 min; Ctrl-C ends it" in terminal.picture()
    app.noop.using(queue="寿司").enqueue_many([()] * 3)
    shows(terminal, "寿司")
    shows(terminal, "no-workers")
    terminal.type(CTRL_C)
    assert terminal.wait() == 0
    assert "Traceback" not in terminal.text()


def test_terminal_that_changes_its_size_is_filled_and_never_overflows(open_terminal):
    for number in range(60):
        Queue.objects.create(name=f"a-queue-that-has-a-long-name-{number:02}")
    terminal = open_terminal("--no-color", wide=220, high=40)
    shows(terminal, "empty in")
    eventually(lambda: fits(terminal, 220, 40) and len(terminal.pictures()[-1]) == 39)
    terminal.resize(50, 12)
    eventually(lambda: fits(terminal, 50, 12) and "more lines" in terminal.picture())
    terminal.resize(220, 80)
    eventually(lambda: "empty in" in terminal.picture() and "name-59" in terminal.picture())
    assert "more lines" not in terminal.picture()


def test_colours_are_for_those_who_want_them(open_terminal):
    coloured, plain = open_terminal(), open_terminal(NO_COLOR="1")
    for terminal in (coloured, plain):
        shows(terminal, "There are no queues yet.")
    shows(coloured, "\x1b[33mwarning")
    assert "\x1b[" not in plain.picture()


def test_database_that_is_away_for_a_while_is_told_and_the_last_figures_stay(open_terminal):
    proxy = Detour()
    Queue.objects.create(name="mail")
    terminal = open_terminal("--no-color", DATABASE_URL=proxy.url())
    shows(terminal, "mail")
    proxy.go_away()
    shows(terminal, "No answer, asked for again every 1 s: ")
    assert "mail" in terminal.picture()
    Queue.objects.create(name="new")
    proxy.come_back()
    eventually(lambda: "new" in (shown := terminal.picture()) and "No answer" not in shown)
    terminal.type(CTRL_C)
    assert terminal.wait() == 0
    proxy.close()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_of_several_databases_those_that_answer_are_shown_on(open_terminal, far, other_server):
    Queue.objects.create(name="here")
    Queue.objects.using(far).create(name="there")
    of_two = {"DJANGO_SETTINGS_MODULE": "tests.processes.several_settings", "OTHER_URL": other_server.url}
    terminal = open_terminal("--no-color", high=50, **of_two)
    shows(terminal, "there")
    assert "pgqueue_stats of default, other, every 1 s" in terminal.picture()
    other_server.stop()
    connections[far].close()
    shows(terminal, "On other, no answer: ")
    Queue.objects.create(name="new")
    shows(terminal, "new")
    other_server.restart("fast")
    shows(terminal, "there")
    terminal.type(CTRL_C)
    assert terminal.wait() == 0


def test_ctrl_c_does_not_wait_for_a_silent_server(open_terminal):
    proxy = Detour()
    terminal = open_terminal("--no-color", DATABASE_URL=proxy.url())
    shows(terminal, "There are no queues yet.")
    proxy.stall()
    terminal.type(CTRL_C)
    assert terminal.wait() == 0
    assert "quer" not in terminal.text(), "psycopg logs a query that it cannot cancel"
    proxy.close()


def test_without_a_terminal_one_look_is_printed_after_the_other(transactional_db):
    proxy = Detour()
    Queue.objects.create(name="mail")
    environment = {**os.environ, "DATABASE_URL": proxy.url()}
    process = subprocess.Popen(
        [*STATS, "--json", "--watch", "1"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(2):
        assert [queue["name"] for queue in json.loads(process.stdout.readline())["queues"]] == ["mail"]
    proxy.go_away()
    assert "No answer" in process.stderr.readline()
    proxy.come_back()
    assert json.loads(process.stdout.readline())["queues"]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert "Traceback" not in said
    proxy.close()


def test_reader_that_has_seen_enough_ends_it_quietly(transactional_db):
    environment = {**os.environ, "DATABASE_URL": database_url()}
    with subprocess.Popen(
        [*STATS, "--watch", "1"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        shown = process.stdout.readline()
        assert "No worker is alive." in shown
        assert CLEAR not in shown
        process.stdout.close()
        assert process.wait(PATIENCE_SECONDS) == 0
        assert not process.stderr.read()
