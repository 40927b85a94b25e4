"""Workers that stories of jobs tell of."""

import pytest
from django.utils import timezone

from django_pgqueue.models import Worker
from tests.support.stories import HOUR


@pytest.fixture
def worker():
    def start(*queues, **values) -> Worker:
        values = {"lease_until": timezone.now() + HOUR, "concurrency": 2, "pid": 7, "host": "web-7", **values}
        return Worker.objects.create(supervisor_id=1, version="1", queues=list(queues), **values)

    return start
