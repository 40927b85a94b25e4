"""Filters of the lists of jobs: what they narrow a list to, and what the address cannot ask for."""

import datetime as dt
from urllib.parse import urlsplit

import pytest
from django.test import RequestFactory
from django.utils.http import urlencode

import tests.app.tasks as app
from django_pgqueue import Unique
from django_pgqueue.admin.confirm_all import query, sentence
from django_pgqueue.admin.job_tables import JobsAdmin
from django_pgqueue.jobs.search import Filter, Source, pages
from django_pgqueue.models import DeadJob, Job, Stage, SucceededJob
from tests.support.admin_jobs import DEAD, JOBS, SUCCEEDED, dead, queued, running, scheduled
from tests.support.job_lists import finish, ids, listed

pytestmark = pytest.mark.django_db

SOURCES = {JOBS: Source.LIVE, DEAD: Source.DEAD, SUCCEEDED: Source.SUCCEEDED}


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
    assert shown("?status=scheduled&queue=none") == shown("?status=limited") == set()
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


@pytest.mark.parametrize("query", [f"{JOBS}?status=x", f"{DEAD}?reason=x", f"{DEAD}?cause=x", f"{SUCCEEDED}?day=x"])
def test_filter_that_cannot_be_is_dropped(viewer, query):
    assert viewer.get(query).status_code == 302


def test_reserved_of_unique_keys_are_shown_only_where_asked_for(viewer, many):
    assert {job.status for job in listed(viewer, JOBS).result_list} == {"scheduled", "queued", "limited", "running"}
    assert {job.status for job in listed(viewer, f"{JOBS}?status=reserved").result_list} == {"reserved"}
    assert {job.status for job in listed(viewer, f"{JOBS}?status=scheduled").result_list} == {"scheduled"}


@pytest.mark.parametrize(
    "address",
    [
        JOBS,
        f"{JOBS}?status=limited",
        f"{JOBS}?queue=q1",
        f"{JOBS}?status=scheduled&queue=q1",
        f"{JOBS}?q=shop.task_1",
        f"{JOBS}?q=shop.task_1&queue=q1",
        f"{JOBS}?status=reserved",
        f"{JOBS}?q=key:none",
        f"{JOBS}?q=arg:none",
        DEAD,
        f"{DEAD}?reason=killed&queue=q0&task=shop.task_1",
        f"{DEAD}?q=shop.task_2",
        f"{DEAD}?q=label%3Dnone",
        SUCCEEDED,
        f"{SUCCEEDED}?queue=q1&q=shop.task_1",
        f"{SUCCEEDED}?day=today",
    ],
)
def test_filter_of_a_list_chooses_what_the_list_shows(viewer, many, monkeypatch, address):
    address = address.replace("today", str(dt.datetime.now(dt.UTC).date()))  # by now, not when tests were collected
    monkeypatch.setattr(JobsAdmin, "list_per_page", 1000)
    cl = listed(viewer, address)
    chosen = cl.model_admin.chosen(RequestFactory().get(address))
    source = SOURCES[urlsplit(address).path]
    assert sorted(job.pk for job in cl.result_list) == [one for page in pages(source, chosen) for one in page.ids]


def test_tag_is_searched_in_all_tables(viewer, sql):
    live = app.noop.using(tags=("import", "shop:7")).enqueue().id
    app.noop.using(tags=("imports",)).enqueue()
    died = dead()
    sql("UPDATE pgqueue_dead_jobs SET tags = ARRAY[NULL, 'import'] WHERE id = %s", died)
    succeeded = finish(10**6, tags=["import"])
    for place, job_id in ((JOBS, live), (DEAD, died), (SUCCEEDED, succeeded)):
        address = f"{place}?q=tag%3Aimport"
        cl = listed(viewer, address)
        assert [job.pk for job in cl.result_list] == [job_id]
        assert cl.model_admin.chosen(RequestFactory().get(address)).tags == ("import",)
        assert f'href="{place}?q=tag%3Aimport">import</a>' in viewer.get(f"{place}{job_id}/change/").content.decode()


def test_filter_of_a_cause_chooses_the_jobs_that_died_of_it(viewer, sql):
    one, other = dead(errors=[{"error": "A", "message": "1"}]), dead(errors=[{"error": "A", "message": "2"}])
    dead(errors=[{"error": "B"}])
    [(cause,)] = sql("SELECT cause FROM pgqueue_dead_jobs WHERE id = %s", one)
    assert ids(viewer, DEAD, cause=cause) == [other, one]
    cl = listed(viewer, f"{DEAD}?cause={cause}")
    assert cl.model_admin.chosen(RequestFactory().get(f"{DEAD}?cause={cause}")) == Filter(cause=cause)


def test_one_job_by_its_id_is_no_filter(viewer):
    job_id = app.record.enqueue().id
    cl = listed(viewer, f"{JOBS}?q={job_id}")
    assert cl.model_admin.chosen(RequestFactory().get(f"{JOBS}?q={job_id}")) is None


def test_unique_key_is_no_filter_of_succeeded_jobs(viewer):
    address = f"{SUCCEEDED}?q=key:receipt:7"
    assert listed(viewer, address).model_admin.chosen(RequestFactory().get(address)) is None


# The search box


@pytest.fixture
def three():
    """Make a job with arguments in each table; returns what makes one, and finds its list."""

    def make(url, args, kwargs, task="record"):
        name = f"tests.app.tasks.{task}"
        if url == SUCCEEDED:
            return finish(len(SucceededJob.objects.all()) + 1, args=args, kwargs=kwargs, task=name)
        if url == DEAD:
            return dead(args=args, kwargs=kwargs, task=name)
        return Job.objects.create(task=name, args=args, kwargs=kwargs).pk

    return make


each_list = pytest.mark.parametrize("url", [JOBS, DEAD, SUCCEEDED])


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
    parked = dead(unique_key="receipt:7", unique_until="end")
    assert ids(viewer, JOBS, q="key:receipt:7") == [live]
    assert ids(viewer, DEAD, q="key: receipt:7") == [parked]
    Job.objects.update(status="reserved")
    assert ids(viewer, JOBS, q="key:receipt:7") == [live], "a reserved row has it too"
    assert ids(viewer, JOBS, q="key:receipt") == ids(viewer, SUCCEEDED, q="key:receipt:7") == []


def test_job_that_has_started_and_given_up_its_key_is_not_acted_on_as_its_holder(viewer):
    started = app.record.using(unique_key="receipt:7", unique=Unique(until="start")).enqueue().id
    Job.objects.filter(pk=started).update(status="running", unique_until="started", lease_token=1, worker_id=1)
    holder = app.record.using(unique_key="receipt:7", unique=Unique(until="start")).enqueue().id
    cl = listed(viewer, f"{JOBS}?q=key:receipt:7")
    chosen = cl.model_admin.chosen(RequestFactory().get(f"{JOBS}?q=key:receipt:7"))
    assert [job.pk for job in cl.result_list] == [holder]
    assert [one for page in pages(Source.LIVE, chosen) for one in page.ids] == [holder]


def test_prefixes_are_no_patterns(viewer, three):
    for url in (JOBS, DEAD, SUCCEEDED):
        job_id = three(url, [], {}, "a_b")
        three(url, [], {}, "axb")
        assert ids(viewer, url, q="tests.app.tasks.a_") == [job_id]
        assert ids(viewer, url, q="tests%") == []
        assert len(ids(viewer, url, q="tests.app")) == 2


# Stages of workflows


@pytest.fixture
def members() -> dict[str, int]:
    """Make a job of a stage in each table, and others."""
    Stage.objects.create(pk=65538, name="pages")
    app.record.enqueue("x")
    dead()
    finish(1)
    return {
        JOBS: Job.objects.create(task="t", stage_id=65538, status="blocked").pk,
        DEAD: dead(stage_id=65538),
        SUCCEEDED: finish(2, stage_id=65538),
    }


@each_list
def test_lists_are_narrowed_to_the_members_of_a_stage(viewer, members, url):
    response = viewer.get(f"{url}?stage=65538")
    assert [job.pk for job in response.context["cl"].result_list] == [members[url]]
    assert "pages of workflow 1" in response.content.decode()
    assert ids(viewer, url, stage=65540) == []
    assert viewer.get(f"{url}?stage=x").url == f"{url}?e=1"
    assert ids(viewer, url, stage=65538, q="other.tasks") == []
    assert ids(viewer, url, stage=65538, queue="other") == []


@each_list
def test_all_members_of_a_stage_are_acted_on(viewer, members, url):
    cl = listed(viewer, f"{url}?stage=65538")
    chosen = cl.model_admin.chosen(RequestFactory().get(f"{url}?stage=65538"))
    assert [one for page in pages(SOURCES[url], chosen) for one in page.ids] == [members[url]]
    assert sentence(chosen, SOURCES[url]) == "stage: pages of workflow 1"
    assert query(chosen, SOURCES[url]) == {"stage": 65538}
    assert sentence(Filter(stage=7), SOURCES[url]) == "stage: 7"


def test_stage_narrows_along_with_the_others(viewer, members):
    job = Job.objects.get(pk=members[JOBS])
    Job.objects.filter(pk=job.pk).update(unique_key="k", unique_until="end")
    assert ids(viewer, JOBS, stage=65538, q="key:k") == ids(viewer, JOBS, stage=65538, status="blocked") == [job.pk]
    assert ids(viewer, JOBS, stage=65538, status="running") == ids(viewer, JOBS, stage=65540, q="key:k") == []
    one = DeadJob.objects.get(pk=members[DEAD])
    assert ids(viewer, DEAD, stage=65538, cause=one.cause, reason=one.reason) == [one.pk]
    assert ids(viewer, DEAD, stage=65538, cause=one.cause + 1) == ids(viewer, DEAD, stage=65538, q="key:k") == []
