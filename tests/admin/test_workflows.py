"""The pages of workflows: which are stuck, how far each stage is, and why one does not go on."""

import datetime as dt
import itertools
import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.http import urlencode

from django_pgqueue import batch, group
from django_pgqueue.admin import keyset
from django_pgqueue.admin.workflows import WorkflowAdmin
from django_pgqueue.models import Job, Stage, StageEdge, Workflow
from tests.app.tasks import noop
from tests.support.job_lists import listed, walk
from tests.support.staff import user_with
from tests.support.workflows import die, finish, look, plain, stage_of, stuck

pytestmark = pytest.mark.django_db

WORKFLOWS = "/admin/pgqueue/workflow/"
ODD = "<script>alert(1)</script>"


@pytest.fixture
def viewer() -> Client:
    return user_with("view_workflow")


@pytest.fixture
def staff() -> Client:
    return user_with("view_workflow", "view_job", "view_deadjob", "view_succeededjob")


def words(response) -> str:
    """Return the text of a page, without markup and with single spaces."""
    text = re.sub(r"<[^>]+>", " ", response.content.decode())
    return re.sub(r"\s+", " ", text)


def page_of(one) -> str:
    return f"{WORKFLOWS}{one.id}/change/"


def names(client: Client, **query) -> list[str]:
    url = f"{WORKFLOWS}?{urlencode(query)}" if query else WORKFLOWS
    return [row.name for row in listed(client, url).result_list]


def chained(pages: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(pages))


@pytest.fixture
def some() -> None:
    """Make a workflow of each kind, named by it."""
    stuck(name="stuck")
    stuck(name="failed", on_death="stop")
    plain("a", name="open", unique_key="k")
    done = plain("a", name="succeeded")
    finish(done, "a", 1)
    look(done, "a")
    plain("a", name="killed").kill(by="eve")
    Workflow.objects.filter(pk=plain("a", name="overdue").id).update(deadline_at=timezone.now() - dt.timedelta(hours=1))


# List


def test_list_says_what_is_stuck_what_is_overdue_and_how_far_each_is(some, viewer):
    response = viewer.get(WORKFLOWS)
    text = words(response)
    assert "1 workflow is stuck" in text
    assert "1 workflow is overdue" in text
    assert "killed by eve" in text
    assert "2/3" in text
    assert 'aria-label="members: 2 of 3 done, 1 dead"' in response.content.decode()
    assert names(viewer) == ["overdue", "killed", "succeeded", "open", "failed", "stuck"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"status": "open"}, ["overdue", "open", "stuck"]),
        ({"status": "stuck"}, ["stuck"]),
        ({"status": "overdue"}, ["overdue"]),
        ({"status": "killed"}, ["killed"]),
        ({"name": "stuck"}, ["stuck"]),
        ({"name": "stuck", "status": "stuck"}, ["stuck"]),
        ({"name": "overdue", "status": "overdue"}, ["overdue"]),
        ({"name": "open", "status": "overdue"}, []),
        ({"name": "open", "status": "stuck"}, []),
        ({"q": "k"}, ["open"]),
        ({"q": "k", "status": "killed"}, []),
        ({"q": "other"}, []),
        ({"q": str(2**70)}, []),
    ],
)
def test_list_is_narrowed(some, viewer, query, found):
    assert names(viewer, **query) == found


def test_key_of_a_workflow_that_has_ended_is_found_too(viewer):
    plain("a", name="first", unique_key="k").kill()
    assert names(viewer, q="k") == ["first"]
    plain("a", name="second", unique_key="k")
    assert names(viewer, q="k") == ["second"]
    one = plain("a", name="third")
    assert names(viewer, q=f" {one.id} ") == ["third"]


@pytest.mark.parametrize("query", [{"status": "x"}, {"name": "a\0"}, {"q": "a\0"}])
def test_address_that_cannot_be_leads_to_the_whole_list(viewer, query):
    assert viewer.get(f"{WORKFLOWS}?{urlencode(query)}").url == f"{WORKFLOWS}?e=1"


def test_no_other_column_is_compared(viewer):
    assert viewer.get(f"{WORKFLOWS}?context__feed=17").status_code == 400


def test_pages_are_walked_by_keys(viewer, monkeypatch):
    monkeypatch.setattr(WorkflowAdmin, "list_per_page", 2)
    for number in range(5):
        plain("a", name=f"w{number % 2}", deadline=1)
    Workflow.objects.update(deadline_at=timezone.now() - dt.timedelta(hours=1))
    ids = sorted(Workflow.objects.values_list("pk", flat=True), reverse=True)
    assert chained(walk(viewer, WORKFLOWS, "next")) == ids
    assert chained(walk(viewer, f"{WORKFLOWS}?status=overdue", "next")) == ids[::-1]
    assert chained(walk(viewer, f"{WORKFLOWS}?name=w0", "next")) == ids[::2]


def test_stuck_ones_are_looked_for_in_a_window(viewer, monkeypatch):
    monkeypatch.setattr(keyset, "WINDOW", 2)
    old = stuck(name="old")
    for _ in range(3):
        plain("a")
    response = viewer.get(f"{WORKFLOWS}?status=stuck")
    assert "Searched the workflows" in words(response)
    assert "Search older workflows" in words(response)
    [further] = re.findall(r'href="(\?[^"]*below=[^"]*)"', response.content.decode())
    assert [row.pk for row in listed(viewer, WORKFLOWS + further.replace("&amp;", "&")).result_list] == [old.id]


def test_list_asks_as_often_however_many_there_are(viewer):
    def number_of_queries() -> int:
        with CaptureQueriesContext(connection) as found:
            viewer.get(WORKFLOWS)
        return len(found)

    stuck()
    first = number_of_queries()
    for _ in range(10):
        stuck()
    assert number_of_queries() == first <= 16


def test_long_workflow_has_some_of_its_bars(viewer):
    plain(*(f"s{number}" for number in range(12)))
    page = viewer.get(WORKFLOWS).content.decode()
    assert page.count('class="pgqueue-bar-of') == 8
    assert "There are more stages." in page


# Page


def test_page_says_why_it_does_not_go_on(staff):
    handle = batch([noop.bind()] * 100, then=noop.bind(), context={"feed": 17, "password": "s3cret"}).enqueue()
    finish(handle, "members", 96)
    die(handle, "members")
    response = staff.get(page_of(handle))
    text, page = words(response), response.content.decode()
    assert "Waits for members : 3 of 100 left, 1 dead." in text
    assert "opens when members succeeded" in text
    stage = stage_of(handle, "members").pk
    for model in ("job", "deadjob", "succeededjob"):
        assert f'href="/admin/pgqueue/{model}/?stage={stage}"' in page
    assert "&quot;feed&quot;: 17" in page
    assert "s3cret" not in page


def test_graph_is_drawn_for_wide_and_for_narrow_screens(viewer):
    handle = stuck()
    page = viewer.get(page_of(handle)).content.decode()
    assert page.count('<svg class="pgqueue-graph ') == 2
    assert page.count('class="pgqueue-box pgqueue-box-dead"') == 2
    assert page.count("1 dead</text>") == 2
    assert page.count(f'id="pgqueue-stage-{stage_of(handle, "members").pk}"') == 1
    assert 'style="' not in page


def test_links_to_jobs_are_for_those_who_may_see_them(viewer):
    page = viewer.get(page_of(stuck())).content.decode()
    assert "/deadjob/" not in page
    assert "/admin/pgqueue/job/" not in page


def test_parents_and_children_are_linked(viewer):
    parent = plain("a")
    child = plain("x", name="child")
    Workflow.objects.filter(pk=child.id).update(parent_stage_id=stage_of(parent, "a").pk)
    assert f'<a href="{page_of(child)}">child #{child.id}</a>' in viewer.get(page_of(parent)).content.decode()
    assert f'<a href="{page_of(parent)}">plain #{parent.id}</a>' in viewer.get(page_of(child)).content.decode()
    assert f'<a href="{page_of(parent)}">#{parent.id}</a>' in viewer.get(WORKFLOWS).content.decode()
    Workflow.objects.filter(pk=parent.id).delete()
    assert f"#{parent.id}" in words(viewer.get(page_of(child)))


def test_conditions_are_written_at_stages(viewer):
    text = words(viewer.get(page_of(batch([noop.bind()], ended=noop.bind(), died=noop.bind()).enqueue())))
    assert "when over" in text
    assert "if one died" in text
    assert "opens if a member of members died" in text
    assert "opens when members ended, either way" in text


def test_times_and_terms_are_facts(viewer):
    handle = plain("a", deadline=3600, unique_key="import:17", on_death="go_on")
    text = words(viewer.get(page_of(handle)))
    for fact in ("Deadline", "import:17", "go on", "Age"):
        assert fact in text
    handle.kill(by="eve")
    text = words(viewer.get(page_of(handle)))
    assert "It was killed by eve" in text
    assert "Took" in text


def test_names_and_values_of_a_workflow_are_text(viewer):
    handle = plain(ODD, name=ODD, unique_key=ODD, context={ODD: ODD})
    handle.kill(by=ODD)
    for address in (WORKFLOWS, page_of(handle)):
        page = viewer.get(address).content.decode()
        assert ODD not in page
        assert "&lt;script&gt;" in page


def test_page_asks_as_often_however_many_members_there_are(viewer):
    def number_of_queries(members: int) -> int:
        handle = group([noop.bind()] * members).enqueue()
        with CaptureQueriesContext(connection) as found:
            viewer.get(page_of(handle))
        return len(found)

    number_of_queries(1)  # and what is asked once in a process: content types
    assert number_of_queries(1) == number_of_queries(200) <= 22


def test_workflow_of_many_stages_is_shown_in_part(viewer):
    handle = plain("first")
    first = stage_of(handle, "first").pk
    Stage.objects.bulk_create([Stage(pk=first + 2 * number, name=f"s{number}") for number in range(1, 600)])
    StageEdge.objects.bulk_create([StageEdge(from_id=first, to_id=first + 2 * number) for number in range(1, 600)])
    text = words(viewer.get(page_of(handle)))
    assert "400 more stages are not drawn." in text
    assert "There are more; these are the first ones." in text


@pytest.mark.parametrize("key", ["x", "999", str(2**62), str(2**70), "1_2"])
def test_what_is_no_workflow_is_not_found(viewer, key):
    assert viewer.get(f"{WORKFLOWS}{key}/change/").status_code == 302
    assert viewer.get(f"{WORKFLOWS}{key}/history/").status_code == 302


def test_who_may_not_see_workflows_sees_none():
    client, handle = user_with("view_job"), stuck()
    for address in (WORKFLOWS, page_of(handle), f"{WORKFLOWS}{handle.id}/history/"):
        assert client.get(address).status_code == 403


def test_member_says_whose_it_is(staff):
    handle = plain("a", name="import")
    both = user_with("view_workflow", "view_job", "view_deadjob", name="bea")
    job = Job.objects.get()
    page = both.get(f"/admin/pgqueue/job/{job.pk}/change/").content.decode()
    assert f'<a href="{page_of(handle)}">import #{handle.id}</a>' in page
    assert f'href="{page_of(handle)}#pgqueue-stage-{job.stage_id}"' in page
    only = user_with("view_job", name="carl").get(f"/admin/pgqueue/job/{job.pk}/change/")
    assert f"import #{handle.id}" in words(only)
    assert "/workflow/" not in only.content.decode()
    Workflow.objects.all().delete()
    assert f"{handle.id}, removed" in words(both.get(f"/admin/pgqueue/job/{job.pk}/change/"))
