"""The search box of the lists of jobs: arguments, unique keys, names."""

import pytest
from django.test import RequestFactory
from django.utils.http import urlencode

import tests.app.tasks as app
from django_pgqueue.jobs.search import Source, pages
from django_pgqueue.models import FinishedJob, Job
from tests.support.admin_jobs import DEAD, FINISHED, JOBS, dead
from tests.support.job_lists import finish, ids, listed

pytestmark = pytest.mark.django_db


@pytest.fixture
def three():
    """Make a job with arguments in each table; returns what makes one, and finds its list."""

    def make(url, args, kwargs, task="record"):
        name = f"tests.app.tasks.{task}"
        if url == FINISHED:
            return finish(len(FinishedJob.objects.all()) + 1, args=args, kwargs=kwargs, task=name)
        if url == DEAD:
            return dead(args=args, kwargs=kwargs, task=name)
        return Job.objects.create(task=name, args=args, kwargs=kwargs).pk

    return make


each_list = pytest.mark.parametrize("url", [JOBS, DEAD, FINISHED])


@each_list
def test_arguments_are_searched_by_value_and_by_name(viewer, three, url):
    by_place, by_name = three(url, [17], {}), three(url, [], {"label": "17"})
    other = three(url, ["n'ü%"], {"note": None, "flag": True})
    assert set(ids(viewer, url, q="arg:17")) == set(ids(viewer, url, q="label=17")) == {by_place, by_name}
    assert ids(viewer, url, q="label = n'ü%") == ids(viewer, url, q="arg:n'ü%") == [other]
    assert (
        ids(viewer, url, q="note=null") == ids(viewer, url, q="flag=true") == ids(viewer, url, q="arg:true") == [other]
    )
    assert ids(viewer, url, q="note=17") == ids(viewer, url, q="arg:") == ids(viewer, url, q="arg:1") == []


@each_list
@pytest.mark.parametrize(
    ("task", "args", "kwargs"),
    [
        ("log_in", ["ann", "hunter22"], {}),
        ("log_in", ["ann"], {"password": "hunter22"}),
        ("record", ["ann"], {"api_key": "hunter22"}),
        ("unknown", ["ann", "hunter22"], {}),
    ],
)
def test_arguments_that_are_not_shown_are_not_found(viewer, three, url, task, args, kwargs):  # noqa: PLR0917
    three(url, args, kwargs, task)
    for term in ("arg:hunter22", "password=hunter22", "api_key=hunter22", "arg:[redacted]"):
        cl = listed(viewer, f"{url}?{urlencode({'q': term})}")
        assert (list(cl.result_list), cl.result_count) == ([], 0)
    assert len(ids(viewer, url, q="arg:ann")) == (task != "unknown")


def test_unique_keys_are_searched(viewer):
    live = app.record.using(unique_key="receipt:7").enqueue().id
    parked = dead(unique_key="receipt:7", unique_scope="live")
    assert ids(viewer, JOBS, q="key:receipt:7") == [live]
    assert ids(viewer, DEAD, q="key: receipt:7") == [parked]
    Job.objects.update(status="reserved")
    assert ids(viewer, JOBS, q="key:receipt:7") == [live], "a reserved row has it too"
    assert ids(viewer, JOBS, q="key:receipt") == ids(viewer, FINISHED, q="key:receipt:7") == []


def test_job_that_has_started_and_given_up_its_key_is_not_acted_on_as_its_holder(viewer):
    started = app.record.using(unique_key="receipt:7", unique_scope="start").enqueue().id
    Job.objects.filter(pk=started).update(status="running", unique_scope="started", lease_token=1, worker_id=1)
    holder = app.record.using(unique_key="receipt:7", unique_scope="start").enqueue().id
    cl = listed(viewer, f"{JOBS}?q=key:receipt:7")
    chosen = cl.model_admin.chosen(RequestFactory().get(f"{JOBS}?q=key:receipt:7"))
    assert [job.pk for job in cl.result_list] == [holder]
    assert [one for page in pages(Source.LIVE, chosen) for one in page.ids] == [holder]


def test_prefixes_are_no_patterns(viewer, three):
    for url in (JOBS, DEAD, FINISHED):
        job_id = three(url, [], {}, "a_b")
        three(url, [], {}, "axb")
        assert ids(viewer, url, q="tests.app.tasks.a_") == [job_id]
        assert ids(viewer, url, q="tests%") == []
        assert len(ids(viewer, url, q="tests.app")) == 2
