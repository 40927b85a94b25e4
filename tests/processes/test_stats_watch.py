"""pgqueue_stats --watch in a pseudo-terminal, as a user has it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.cli.stats_watch import BEGIN, LEAVE
from django_pgqueue.insights.formatting import width
from django_pgqueue.models import Queue
from tests.support.proxy import Detour
from tests.support.terminal import CTRL_C, CTRL_Z, ERASE, Terminal
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.workers import MANAGE, database_url

pytestmark = pytest.mark.django_db(transaction=True)

STATS = (sys.executable, str(MANAGE), "pgqueue_stats")


@pytest.fixture
def open_terminal(transactional_db):
    opened = []

    def begin(*options, words=(*STATS, "--watch", "1"), wide=120, high=30, **environment):
        environment = {"DATABASE_URL": database_url(), **environment}
        opened.append(Terminal([*words, *options], environment=environment, wide=wide, high=high))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


def shows(terminal: Terminal, words: str):
    eventually(lambda: words in terminal.picture() or must_live(terminal))


def must_live(terminal: Terminal) -> bool:
    assert terminal.process.poll() is None, terminal.text()
    return False


def fits(terminal: Terminal, wide: int, high: int) -> bool:
    lines = terminal.pictures()[-1]
    return len(lines) <= high and all(width(line) <= wide for line in lines)


def test_queue_is_shown_anew_until_ctrl_c_gives_the_terminal_back(open_terminal):
    terminal = open_terminal("--no-color")
    shows(terminal, "There are no queues yet.")
    enqueue_many(app.noop.using(queue="寿司"), [()] * 3)
    shows(terminal, "寿司")
    assert "no-workers" in terminal.picture()
    assert terminal.modes() != terminal.before, "what is typed is not shown"
    terminal.type(b"xyz")
    terminal.type(CTRL_C)
    assert terminal.wait() == 0
    eventually(terminal.is_as_before)
    assert "Traceback" not in terminal.text()


def test_terminal_that_changes_its_size_is_filled_and_never_overflows(open_terminal):
    for number in range(60):
        Queue.objects.create(name=f"a-queue-that-has-a-long-name-{number:02}")
    terminal = open_terminal("--no-color", wide=150, high=40)
    shows(terminal, "empty in")
    assert fits(terminal, 150, 40)
    assert len(terminal.pictures()[-1]) == 40
    terminal.resize(50, 12)
    eventually(lambda: fits(terminal, 50, 12))
    assert "more queues" in terminal.picture()
    terminal.resize(150, 80)
    eventually(lambda: "empty in" in terminal.picture() and "more queues" not in terminal.picture())
    terminal.type(b"q")
    assert terminal.wait() == 0
    eventually(terminal.is_as_before)


def test_line_as_wide_as_the_terminal_keeps_its_last_character(open_terminal):
    """The cursor stays on it, so what is erased from there on begins with it."""
    app.noop.enqueue()
    terminal = open_terminal("--no-color", wide=50, high=8)
    shows(terminal, "no-workers")
    assert any(width(line) == 50 and line.endswith("…") for line in terminal.pictures()[-1])
    assert re.search(ERASE, terminal.text())
    assert not re.search(rf"…{ERASE}", terminal.text())


def test_colours_are_for_those_who_want_them(open_terminal):
    coloured, plain = open_terminal(), open_terminal(NO_COLOR="1")
    for terminal in (coloured, plain):
        shows(terminal, "There are no queues yet.")
    assert "\x1b[33mwarning" in coloured.picture()
    assert "\x1b[" not in plain.picture()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_that_ends_it_gives_the_terminal_back(open_terminal, number):
    terminal = open_terminal()
    shows(terminal, "There are no queues yet.")
    terminal.process.send_signal(number)
    assert terminal.wait() == 128 + number
    eventually(terminal.is_as_before)


def test_ctrl_z_gives_the_terminal_back_for_a_while(open_terminal):
    """A shell is needed for it, to which the terminal can go back."""
    terminal = open_terminal(words=["bash", "--norc", "-i"])
    terminal.type(shlex.join([*STATS, "--watch", "1"]).encode() + b"\n")
    shows(terminal, "There are no queues yet.")
    terminal.type(CTRL_Z)
    eventually(lambda: "Stopped" in terminal.text().rpartition(LEAVE)[2])
    terminal.type(b"fg\n")
    eventually(lambda: BEGIN in terminal.text().rpartition(LEAVE)[2])
    terminal.type(CTRL_C)
    eventually(lambda: terminal.text().count(LEAVE) == 2)
    terminal.type(b"exit\n")
    assert terminal.wait() == 0


def test_database_that_is_away_for_a_while_is_told_and_the_last_figures_stay(open_terminal):
    proxy = Detour()
    Queue.objects.create(name="mail")
    terminal = open_terminal("--no-color", DATABASE_URL=proxy.url())
    shows(terminal, "mail")
    proxy.go_away()
    shows(terminal, "No answer for")
    assert "mail" in terminal.picture()
    Queue.objects.create(name="new")
    proxy.come_back()
    eventually(lambda: "new" in (shown := terminal.picture()) and "No answer for" not in shown)
    proxy.stall()
    shows(terminal, "No answer for")
    terminal.type(CTRL_C)
    assert terminal.wait() == 0, "whatever the database does"
    eventually(terminal.is_as_before)
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
    assert process.stderr.readline().strip(), "says what is wrong"
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
        assert "No worker is alive." in process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_SECONDS) == 0
        assert not process.stderr.read()
