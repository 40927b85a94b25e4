"""Forms of schedules and queues: what they take, and what they say at which field."""

import re

import pytest

from django_pgqueue.models import Queue

pytestmark = pytest.mark.django_db


def test_labels_of_forms_begin_as_those_of_django(admin_client):
    Queue.objects.create(name="mail")
    for url in ("schedule/add/", "queue/mail/change/"):
        page = admin_client.get(f"/admin/django_pgqueue/{url}").content.decode()
        labels = re.findall(r"<label[^>]*for=\"id_[^>]*>\s*([^<]+?)\s*</label>", page)
        assert len(labels) >= 4
        assert [label for label in labels if label[0].islower()] == []
