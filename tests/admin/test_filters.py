"""Filters of the lists of jobs: what they narrow a list to, and what the address cannot ask for."""

import pytest

from tests.support.admin_jobs import DEAD, FINISHED, JOBS, dead, queued, running, scheduled

pytestmark = pytest.mark.django_db


def test_filters_narrow_the_lists(viewer):
    ids = {
        "queued": queued(queue="mail"),
        "scheduled": scheduled(queue="mail"),
        "running": running(queue="mail"),
        "other": queued(),
    }

    def shown(query):
        return {job.pk for job in viewer.get(f"{JOBS}{query}").context["cl"].result_list}

    assert shown("?status=queued") == {ids["queued"], ids["other"]}
    assert shown("?status=scheduled") == {ids["scheduled"]}
    assert shown("?status=scheduled&queue=mail") == {ids["scheduled"]}
    assert shown("?status=scheduled&queue=none") == shown("?status=waiting") == set()
    assert shown("?status=running&queue=mail") == {ids["running"]}
    assert shown("?queue=mail") == {ids["queued"]}
    assert shown(f"?q={ids['other']}") == {ids["other"]}
    assert shown("?q=shop") == shown("?q=99999999999999999999") == shown("?q=9223372036854775807") == set()
    assert shown("?q=tests.app.tasks.rec") == {ids["queued"], ids["scheduled"], ids["other"]}
    assert shown("?q=tests&queue=mail") == {ids["queued"], ids["scheduled"], ids["running"]}
    page = viewer.get(f"{JOBS}?status=scheduled").content.decode()
    assert "?queue=mail&amp;status=scheduled" in page


def test_filters_of_dead_jobs_narrow_the_list(viewer):
    one, two = dead(queue="mail", task="shop.b", reason="lost"), dead(task="shop.a_1")

    def shown(query):
        return [job.pk for job in viewer.get(f"{DEAD}{query}").context["cl"].result_list]

    assert shown("") == [two, one]
    assert shown("?queue=mail") == shown("?reason=lost") == shown("?task=shop.b") == [one]
    assert shown("?q=shop") == [two, one]
    assert shown("?q=shop.a_") == [two]
    assert shown("?q=hop") == shown("?q=shop%25") == []
    assert shown(f"?q={one}") == [one]


@pytest.mark.parametrize(
    "query",
    [
        "args__contains=x",
        "errors__icontains=x",
        "task__contains=x",
        "id__in=1",
        "status__in=queued",
        "run_at__year=2026",
    ],
)
def test_address_bar_reaches_no_other_column(viewer, query):
    assert viewer.get(f"{JOBS}?{query}").status_code == 400


@pytest.mark.parametrize("query", [f"{JOBS}?status=x", f"{DEAD}?reason=x", f"{DEAD}?cause=x", f"{FINISHED}?day=x"])
def test_filter_that_cannot_be_is_dropped(viewer, query):
    assert viewer.get(query).status_code == 302
