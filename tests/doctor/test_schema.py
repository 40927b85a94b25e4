"""An index that is invalid is found, and dropped by the statement of its finding."""

import pytest

from tests.support.doctor import cured_by_statements, diagnosis, insert, is_healthy
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("living")]


def test_statement_that_drops_an_index_has_its_name_in_quotes(sql):
    insert(sql, "tests.app.tasks.noop")
    insert(sql, "tests.app.tasks.noop")
    name = 'My "index"; --'
    with pytest.raises(Exception, match="could not create unique index"):
        sql(f'CREATE UNIQUE INDEX CONCURRENTLY "{name.replace(chr(34), 2 * chr(34))}" ON pgqueue_jobs (task)')
    sql("DELETE FROM pgqueue_jobs")
    finding = diagnosis()[0]["indexes-invalid"]
    assert finding["facts"]["indexes"] == [name]
    cured_by_statements(sql, finding)
    eventually(lambda: is_healthy(sql))
