"""The base of all commands that only look, or change a few rows."""

import os
import subprocess

import pytest
from django.core.management import CommandError, call_command

from tests.support import prestarted
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.workers import database_url


@pytest.mark.parametrize("words", [["pgqueue_tasks"], ["pgqueue_queues", "list"], ["pgqueue_stats"]])
def test_where_nothing_reads_on_it_ends_quietly(transactional_db, words):
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "DATABASE_URL": database_url()}
    with prestarted.Popen(
        words, env=environment, afresh=True, stdout=writer, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(writer)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, said) == (0, "")


def test_error_of_the_package_is_one_sentence():
    with pytest.raises(CommandError, match=r"^No task is called 'shop\.none'"):
        call_command("pgqueue_tasks", "shop.none")
