"""Names in findings: some of many, and cut where one is too long."""

import pytest

import tests.app.tasks as app
from tests.support.doctor import only, say
from tests.support.worker_rows import worker

pytestmark = pytest.mark.django_db


def test_many_queues_are_one_finding():
    worker(queues=["default"])
    for number in range(8):
        app.noop.using(queue=f"q{number}").enqueue_many([()])
    finding = only("queue-not-served")
    assert "8 queues" in finding.what
    assert "q4 (1) and 3 more" in finding.what
    assert len(finding.facts["queues"]) == 8


@pytest.mark.usefixtures("living")
def test_names_are_cut_where_they_fill_the_screen(sql):
    sql("INSERT INTO pgqueue_jobs (task) VALUES ('gone.' || repeat('x', 490) || '.away')")
    text, *_ = say()
    assert "x" * 200 not in text
    assert "gone.xxx" in text
    assert "xxx.away" in text
