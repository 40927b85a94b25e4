"""Statements by their names, and the sizes of their batches."""

import re

import pytest

import tests.app.tasks as app
from django_pgqueue.db.queries import LADDER, LIMIT, PACKAGE, ladder_size, sized, statement

BATCHES = sorted(path.stem for path in PACKAGE.rglob("sql/*.sql") if path.read_text().count(LIMIT) == 1)


@pytest.mark.parametrize(("name", "folder"), [("claim", "jobs"), ("promote", "maintenance"), ("notify", "db")])
def test_statement_is_found_by_its_name_in_whichever_folder_it_is(name, folder):
    assert statement(name) == (PACKAGE / folder / "sql" / f"{name}.sql").read_text()


def test_name_that_no_file_has_is_an_error():
    with pytest.raises(KeyError, match="no_such_statement"):
        statement("no_such_statement")


@pytest.mark.parametrize("name", BATCHES)
def test_size_changes_the_limit_of_a_batch_and_nothing_else(name):
    for size in LADDER:
        before, after = (re.findall(r"\w+|\W", text) for text in (statement(name), sized(name, size)))
        changed = [number for number, word in enumerate(after) if before[number] != word]
        assert len(before) == len(after)
        assert [after[number - 2 : number + 1] for number in changed] == [["LIMIT", " ", str(size)]] * (size < 1000)


def test_statement_takes_as_many_rows_as_its_size_says(queue, sql):
    app.noop.enqueue_many([()] * 9)
    sql("UPDATE pgqueue_jobs SET status = 'scheduled', run_at = now() - interval '1 s'")
    for size, left in ((1, 8), (5, 3), (20, 0)):
        queue.rows(sized("promote", size), {})
        assert sql("SELECT count(*) FROM pgqueue_jobs WHERE status = 'scheduled'") == [(left,)]


def test_size_that_is_none_of_the_ladder_is_refused():
    """Each would be one more statement for every session to prepare."""
    for size in (0, 7, 1001):
        with pytest.raises(ValueError, match=f"{size} is not in the ladder"):
            sized("promote", size)


def test_statement_without_a_limit_has_no_sizes():
    assert LIMIT not in statement("notify")
    with pytest.raises(ValueError, match=r"notify\.sql has no single 'LIMIT 1000'"):
        sized("notify", 10)


def test_size_of_the_ladder_is_the_largest_that_is_not_above_what_is_wanted():
    assert [ladder_size(wanted) for wanted in (1, 7, 8, 99, 699, 1000, 5000)] == [1, 6, 8, 80, 500, 1000, 1000]
    assert {ladder_size(wanted) for wanted in range(1, 1001)} == set(LADDER)


@pytest.mark.parametrize(("wanted", "size"), [(1, 1), (7, 6), (99, 80), (100, 100), (5000, 1000)])
def test_ladder_rounds_down(wanted, size):
    assert ladder_size(wanted) == size


def test_limit_is_a_literal_of_the_ladder():
    assert f"LIMIT {LADDER[3]}\n" in sized("claim", LADDER[3])
    with pytest.raises(ValueError, match="7 is not in the ladder"):
        sized("claim", 7)
