"""Workers and bulk actions, as people are told of them."""

import pytest

from django_pgqueue.db.queries import statement
from tests.support.plans import explain, fill

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("jobs_per_worker", {"worker_ids": [1, 2, 3], "limit": 1001}), ("jobs_of_worker", {"worker_id": 3, "limit": 101})],
)
def test_jobs_of_workers_are_found_by_their_index(queue, name, parameters):
    fill(queue, 3000, "queued", "running")
    scans = [node for node in explain(queue, statement(name), parameters) if "Relation Name" in node]
    assert scans
    assert {node.get("Index Name") for node in scans} == {"pgqueue_jobs_running"}
