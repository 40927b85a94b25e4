"""Charts of the admin: an island of JSON, and the same numbers as a table."""

import datetime as dt
import json
import re

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Stat
from tests.support.staff import user_with

pytestmark = pytest.mark.django_db

PAGE = "/admin/pgqueue/overview/"


@pytest.fixture
def viewer() -> Client:
    return user_with("view_overview")


def test_chart_without_anything_to_draw_says_so(viewer):
    page = viewer.get(PAGE).content.decode()
    assert page.count("Nothing ran in this time, up to the last full minute.") == 2
    assert page.count("Nothing ran in this time, up to the last full 15 minutes.") == 2
    assert "pgqueue-plot" not in page


def test_charts_tell_what_was_done_as_json_and_as_a_table(viewer, settings):
    minute = timezone.now().replace(second=0, microsecond=0) - dt.timedelta(minutes=2)
    Stat.objects.create(minute=minute, queue="mail", task="t", succeeded=6, failed=2, wait_seconds=4.0)
    text = viewer.get(PAGE).content.decode()
    island = json.loads(re.search(r'<script id="hour-throughput" type="application/json">(.*?)</script>', text)[1])
    at = island["times"].index(int(minute.timestamp()))
    assert [line["values"][at] for line in island["lines"]] == [6, 2]
    assert island["zone"] == settings.TIME_ZONE
    assert "<td>6</td><td>2</td>" in text
    assert "<td>0.5</td>" in text
