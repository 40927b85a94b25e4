"""The database that a page shows, by the id or the address; its links, forms and redirects; a database that is away."""

import html
import re
from collections import deque
from urllib.parse import parse_qs, quote, unquote, urljoin, urlsplit

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import OperationalError, connections
from django.test import Client
from django.utils import translation

from django_pgqueue import queues
from django_pgqueue.admin.databases import located
from django_pgqueue.conf import NUMBER_SHIFT, conf
from django_pgqueue.models import BulkAction, DeadJob, Job, Queue, Stage, SucceededJob, Workflow
from tests.app.tasks import noop
from tests.support.schedules import make
from tests.support.shards import MARKS
from tests.support.staff import confirm, messages_of, tick, user_with

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.filterwarnings("ignore:A job is enqueued on"),
]

ADMIN = "/admin/pgqueue/"
LISTS = ("job", "deadjob", "queue", "worker", "workflow", "oncekey", "bulkaction")


@pytest.fixture
def staff(db) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    return client


def page(client: Client, path: str, **query: str) -> str:
    response = client.get(f"{ADMIN}{path}", query)
    assert response.status_code == 200
    return response.content.decode()


# What is shown


@pytest.mark.parametrize("name", [*LISTS, "succeededjob"])
def test_list_shows_one_database(staff, filled, name):
    home, there = page(staff, f"{name}/"), page(staff, f"{name}/", database=filled)
    if name == "succeededjob":  # whose list shows no queues
        ids = {alias: str((conf.number_of(alias) << NUMBER_SHIFT) + 1000) for alias in MARKS}
        assert (f"/{ids['default']}/" in home, f"/{ids['other']}/" in home) == (True, False)
        assert (f"/{ids['default']}/" in there, f"/{ids['other']}/" in there) == (False, True)
        return
    assert ("homeward" in home, "abroad" in home) == (True, False)
    assert ("homeward" in there, "abroad" in there) == (False, True)


def test_overview_of_another_database_has_its_figures_and_those_of_the_others_beside_them(staff, filled):
    there = staff.get(f"{ADMIN}overview/", {"database": filled})
    assert [str(row["queue"].text) for row in there.context["rows"]] == ["abroad", "default"]
    assert [(one.name, one.address) for one in there.context["shards"]] == [("default", f"{ADMIN}overview/")]
    home = staff.get(f"{ADMIN}overview/")
    assert [(one.name, one.address) for one in home.context["shards"]] == [
        (filled, f"{ADMIN}overview/?database={filled}")
    ]
    assert {row["address"] for row in home.context["findings"] if "On the database other" in row["finding"].what} == {
        f"{ADMIN}queue/default/change/?database={filled}"
    }


@pytest.mark.parametrize("model", [Job, DeadJob, SucceededJob, Workflow])
def test_page_of_a_job_or_workflow_is_found_by_its_id_alone(staff, filled, model):
    row = model.objects.using(filled).order_by("pk").first()
    text = page(staff, f"{model._meta.model_name}/{row.pk}/change/")
    assert '<strong aria-current="true">other</strong>' in text
    other = page(staff, f"{model._meta.model_name}/{row.pk}/change/", database="default")
    assert '<strong aria-current="true">other</strong>' in other  # the id is right, the address is not


def test_page_of_a_job_that_has_moved_leads_to_it(staff, filled):
    dead = DeadJob.objects.using(filled).get()
    response = staff.get(f"{ADMIN}job/{dead.pk}/change/", follow=True)
    assert response.redirect_chain == [(f"{ADMIN}deadjob/{dead.pk}/change/?database={filled}", 302)]
    assert messages_of(response) == [f"Job {dead.pk} is dead by now."]


def test_search_for_an_id_of_another_database_leads_there(staff, filled):
    job = Job.objects.using(filled).order_by("pk").first()
    text = html.unescape(page(staff, "job/", q=str(job.pk)))
    address = f"{ADMIN}job/?q={job.pk}&database={filled}"
    assert f'<a href="{address}">Search the database other</a>' in text
    assert f"/{job.pk}/change/" in staff.get(address).content.decode()


def test_search_for_a_workflow_of_another_database_leads_there(staff, filled):
    workflow = Workflow.objects.using(filled).get()
    address = f"{ADMIN}workflow/?q={workflow.pk}&database={filled}"
    assert f'href="{address}"' in html.unescape(page(staff, "workflow/", q=str(workflow.pk)))
    assert f"/{workflow.pk}/change/" in staff.get(address).content.decode()


def test_schedules_are_those_of_the_home_database(staff, filled):
    nightly = make("nightly")
    assert "nightly" in page(staff, "schedule/", database=filled)
    assert f"?database={filled}" not in page(staff, "schedule/", database=filled).partition("pgqueue-databases")[2]
    assert "nightly" in page(staff, f"schedule/{nightly.pk}/change/", database=filled)


def test_list_in_german_names_the_database(staff, filled):
    with translation.override("de"):
        text = staff.get(f"{ADMIN}job/", headers={"accept-language": "de"}).content.decode()
    assert 'aria-label="Datenbank"' in text


# Where it leads

LINK, FORM = re.compile(r'<a [^>]*?href="([^"]+)"'), re.compile(r'<form [^>]*?action="([^"]+)"')
OF_OTHERS = re.compile(
    r'<nav class="pgqueue-databases".*?</nav>|<section data-pgqueue-live="shards".*?</section>'
    r"|<li((?!</li>).)*On the database default.*?</li>",
    re.DOTALL,
)
OF_ALL = {ADMIN, f"{ADMIN}schedule/", f"{ADMIN}schedule/add/"}

ROW = re.compile(r"\d+|abroad|default")
BY_ID = re.compile(rf"{ADMIN}(job|deadjob|succeededjob|workflow)/\d+/")


def is_of_a_database(address: str) -> bool:
    path = urlsplit(address).path
    return path.startswith(ADMIN) and path not in OF_ALL


def test_all_links_and_forms_of_pages_stay_on_their_database(staff, filled):
    first = f"{ADMIN}overview/?database={filled}"
    ahead, seen, kinds = deque([first]), set(), set()  # a page of each kind, and of each set of parameters
    while ahead:
        address = ahead.popleft()
        response = staff.get(address)
        if response.status_code == 302:
            assert response.url.startswith(ADMIN), address
            found = [response.url]
        else:
            assert response.status_code == 200, address
            text = OF_OTHERS.sub("", response.content.decode())
            if "/overview/" not in address:
                assert "homeward" not in text, address
            for form in map(html.unescape, FORM.findall(text)):
                assert not is_of_a_database(form) or parse_qs(urlsplit(form).query)["database"] == [filled], address
            kinds.add(ROW.sub("*", urlsplit(address).path))
            found = [urljoin(address, html.unescape(one)) for one in LINK.findall(text)]
        for one in sorted(filter(is_of_a_database, found)):
            assert BY_ID.match(one) or f"database={filled}" in unquote(one), (address, one)
            kind = ROW.sub("*", urlsplit(one).path), *parse_qs(urlsplit(one).query)
            if kind not in seen:
                seen.add(kind)
                ahead.append(one)
    rows = {f"{ADMIN}{name}/*/{kind}/" for name in (*LISTS, "succeededjob") for kind in ("change", "history")}
    rows -= {f"{ADMIN}oncekey/*/change/", f"{ADMIN}oncekey/*/history/"}  # which have no pages
    assert rows <= kinds
    assert {f"{ADMIN}deadjob/causes/", f"{ADMIN}job/enqueue/", f"{ADMIN}deadjob/retry/matching/"} <= kinds


def test_list_links_to_the_other_databases_without_filters(staff, filled):
    text = html.unescape(page(staff, "job/", database=filled, queue="abroad", status="queued"))
    assert f'<a href="{ADMIN}job/">default</a>' in text
    assert '<strong aria-current="true">other</strong>' in text
    assert f'<a href="{ADMIN}job/?database={filled}">other</a>' in page(staff, "job/", queue="homeward")


def test_address_that_filters_by_anything_else_leads_to_the_list_of_the_database(staff, filled):
    response = staff.get(f"{ADMIN}job/", {"database": filled, "status": "odd"}, follow=True)
    assert response.redirect_chain == [(f"{ADMIN}job/?e=1&database={filled}", 302)]


def test_one_database_has_no_word_more(staff):
    noop.enqueue()
    for address in ("job/", "overview/", f"job/{Job.objects.get().pk}/change/"):
        assert "pgqueue-databases" not in page(staff, address)
    assert located("/x/", "a=1") == "/x/?a=1"


# Changes


def test_button_acts_on_the_database_of_the_row(staff, filled):
    job = Job.objects.using(filled).get(queue="abroad")
    text = html.unescape(page(staff, f"job/{job.pk}/change/"))
    address = f"{ADMIN}job/kill/?database={filled}"
    assert f'action="{address}"' in text
    asked = staff.post(address, {"ids": job.pk, "page": 1, "filters": ""}).content.decode()
    assert f'<form method="post" action="{address}">' in asked
    response = confirm(staff, address, job.pk, page=1)
    assert len(messages_of(response)) == 1
    assert response.redirect_chain[0][0] == f"{ADMIN}job/?database={filled}"
    assert DeadJob.objects.using(filled).filter(pk=job.pk).exists()
    assert not DeadJob.objects.using("default").filter(pk=job.pk).exists()
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == (str(job.pk), "Killed. Database: other.")


def test_button_that_has_lost_its_database_changes_nothing(staff, filled):
    job = Job.objects.using(filled).get(queue="abroad")
    response = confirm(staff, f"{ADMIN}job/kill/", job.pk)
    assert [one.startswith("Left alone: 1") for one in messages_of(response)] == [True]
    assert Job.objects.using(filled).filter(pk=job.pk).exists()


def test_ticked_rows_are_those_of_the_database(staff, filled):
    names = Queue.objects.using(filled).values_list("pk", flat=True)
    assert "abroad" in names
    list_address = f"{ADMIN}queue/?database={filled}"
    question = tick(staff, list_address, "resume", "abroad").content.decode()
    assert f'<form method="post" action="{ADMIN}queue/resume/?database={filled}">' in question
    assert f'<a href="{ADMIN}queue/abroad/change/?database={filled}">abroad</a>' in question
    response = confirm(staff, f"{ADMIN}queue/resume/?database={filled}", "abroad", filters=f"database={filled}")
    assert response.redirect_chain[0][0] == list_address
    assert Queue.objects.using(filled).get(pk="abroad").paused_at is None
    assert Queue.objects.using("default").get(pk="homeward").paused_at is not None


def test_all_that_match_are_those_of_the_database(staff, filled):
    dead = DeadJob.objects.using(filled).get()
    chosen = {"action": "retry", "index": 0, "select_across": 1, "_selected_action": dead.pk}
    response = staff.post(f"{ADMIN}deadjob/?queue=abroad&database={filled}", chosen)
    assert response.url == f"{ADMIN}deadjob/retry/matching/?queue=abroad&database={filled}"
    assert "<strong>1</strong>" in staff.get(response.url).content.decode()
    begun = staff.post(response.url, {"rate": ""}, follow=True)
    latest = BulkAction.objects.using(filled).order_by("-pk").first()
    assert begun.redirect_chain[0][0] == f"{ADMIN}bulkaction/{latest.pk}/change/?database={filled}"
    assert latest.by == "ann"
    assert not BulkAction.objects.using("default").filter(by="ann").exists()
    stopped = staff.post(f"{ADMIN}bulkaction/{latest.pk}/stop/?database={filled}", follow=True)
    assert messages_of(stopped) == ["It was stopped. Finished work is not undone."]
    assert BulkAction.objects.using(filled).get(pk=latest.pk).stopped_at is not None


LIMITS = {"max_running": 3, "rate_limit": "", "rate_period_seconds": "", "rate_burst": ""}


@pytest.fixture
def namesake(filled) -> str:
    """The name of a queue that is on both databases."""
    queues.pause("abroad", by="eve", database="default")
    return "abroad"


def limit_of(alias: str) -> int | None:
    return Queue.objects.using(alias).get(pk="abroad").max_running


def form_of(address: str, text: str) -> str:
    """Return the address that the form of a row's page is sent to."""
    [action] = re.findall(r'<form (?:action="([^"]*)" )?method="post" id="queue_form"', text)
    return urljoin(address, html.unescape(action))


@pytest.mark.parametrize("query", ["database=other", "_changelist_filters=q%3Dab&database=other"])
def test_limits_are_set_on_the_database_that_the_page_shows(staff, namesake, query):
    address = f"{ADMIN}queue/abroad/change/?{query}"
    sent_to = form_of(address, staff.get(address).content.decode())
    response = staff.post(sent_to, {**LIMITS, "_save": "Save"}, follow=True)
    assert (limit_of("other"), limit_of("default")) == (3, None)
    assert messages_of(response) == ["The limits of the queue abroad were changed."]
    assert parse_qs(urlsplit(response.redirect_chain[0][0]).query)["database"] == ["other"]
    again = staff.post(sent_to, {**LIMITS, "max_running": 4, "_continue": "Save"}, follow=True)
    assert limit_of("other") == 4
    assert '<strong aria-current="true">other</strong>' in again.content.decode()
    entries = LogEntry.objects.order_by("pk").values_list("change_message", flat=True)
    assert list(entries) == ["Changed At once. Database: other."] * 2


def test_address_is_stronger_than_that_of_the_list_before(staff, namesake):
    address = f"{ADMIN}queue/abroad/change/?_changelist_filters=database%3Dother&database=default"
    text = staff.get(address).content.decode()
    assert '<strong aria-current="true">default</strong>' in text
    staff.post(form_of(address, text), {**LIMITS, "_save": "Save"})
    assert (limit_of("other"), limit_of("default")) == (None, 3)
    assert "Database:" not in LogEntry.objects.get().get_change_message()


def test_old_address_of_a_row_leads_to_its_page_on_the_database(staff, namesake):
    response = staff.get(f"{ADMIN}queue/abroad/", {"database": "other"}, follow=True)
    assert response.redirect_chain == [(f"{ADMIN}queue/abroad/change/?database=other", 302)]
    assert '<strong aria-current="true">other</strong>' in response.content.decode()
    assert staff.get(f"{ADMIN}queue/abroad/").url == f"{ADMIN}queue/abroad/change/"


def test_old_address_of_a_row_with_any_name_leads_to_its_page_on_the_database(staff, shard):
    queues.pause("große mails", by="eve", database=shard)
    response = staff.get(f"{ADMIN}queue/{quote('große mails')}/", {"database": shard})
    assert response.url == f"{ADMIN}queue/{quote('große mails')}/change/?database={shard}"
    assert '<strong aria-current="true">other</strong>' in staff.get(response.url).content.decode()


def test_further_pages_of_a_history_are_on_the_database(staff, namesake):
    ann, queue = User.objects.get(username="ann"), ContentType.objects.get_for_model(Queue)
    LogEntry.objects.bulk_create(
        LogEntry(user=ann, content_type=queue, object_id="abroad", object_repr="abroad", action_flag=CHANGE)
        for _number in range(101)
    )
    address = f"{ADMIN}queue/abroad/history/?database=other"
    [further] = re.findall(r'href="([^"]*p=2)"', staff.get(address).content.decode())
    second = staff.get(urljoin(address, html.unescape(further))).content.decode()
    assert '<strong aria-current="true">other</strong>' in second
    assert second.count('<th scope="row">') == 1


def test_limits_are_set_and_logged_or_neither(staff, namesake, monkeypatch):
    monkeypatch.setattr(LogEntry.objects, "log_actions", failing)
    with pytest.raises(ZeroDivisionError):
        staff.post(f"{ADMIN}queue/abroad/change/?database=other", {**LIMITS, "_save": "Save"})
    assert limit_of("other") is None


def failing(*_args, **_options):
    raise ZeroDivisionError


def test_buttons_of_stages_act_on_the_database_of_the_workflow(staff, filled):
    workflow = Workflow.objects.using(filled).get()
    text = html.unescape(page(staff, f"workflow/{workflow.pk}/change/"))
    address = f"{ADMIN}stage/kill/?database={filled}"
    assert f'formaction="{address}"' in text
    [stage] = Stage.objects.using(filled).filter(name="members")
    response = confirm(staff, address, stage.pk)
    assert response.redirect_chain[0][0].startswith(f"{ADMIN}workflow/{workflow.pk}/change/")
    assert not Job.objects.using(filled).filter(stage_id=stage.pk).exists()


def test_form_enqueues_on_the_database(staff, filled):
    address = f"{ADMIN}job/enqueue/?task=tests.app.tasks.noop&database={filled}"
    text = staff.get(address).content.decode()
    sent = dict(re.findall(r'name="(form|queue|priority|args|kwargs)" value="([^"]*)"', text))
    response = staff.post(address, {**sent, "args": "[]", "kwargs": "{}", "queue": "typed", "delay": ""}, follow=True)
    job = Job.objects.using(filled).get(queue="typed")
    assert response.redirect_chain == [(f"{ADMIN}job/{job.pk}/change/?database={filled}", 302)]
    assert f'<input type="hidden" name="database" value="{filled}">' in page(staff, "job/enqueue/", database=filled)


def test_dead_job_is_retried_with_other_arguments_on_its_database(staff, filled):
    dead = DeadJob.objects.using(filled).get()
    address = f"{ADMIN}deadjob/{dead.pk}/retry_with/?database={filled}"
    assert address in html.unescape(page(staff, f"deadjob/{dead.pk}/change/"))
    form = dict(re.findall(r'name="(form)" value="([^"]*)"', staff.get(address).content.decode()))
    sent = {**form, "args": "[]", "kwargs": "{}", "queue": "again", "priority": 0, "confirmed": "yes"}
    response = staff.post(address, sent, follow=True)
    job = Job.objects.using(filled).get(queue="again")
    assert response.redirect_chain == [(f"{ADMIN}job/{job.pk}/change/?database={filled}", 302)]


def test_form_of_a_task_of_another_database_is_there(staff, shard, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {shard: {"number": 1, "queues": [noop.options.queue]}}}
    address = f"{ADMIN}job/enqueue/?task=tests.app.tasks.noop"
    response = staff.get(address, follow=True)
    assert response.redirect_chain == [(f"{address}&database={shard}", 302)]
    assert 'name="args"' in response.content.decode()


def test_log_names_the_database_of_the_job(staff, filled, settings):
    there = {"default": {"number": 0, "queues": ["homeq"]}, **settings.PGQUEUE["SHARDS"]}
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": there}
    address = f"{ADMIN}job/enqueue/?task=tests.app.tasks.noop&database={filled}"
    sent = dict(re.findall(r'name="(form)" value="([^"]*)"', staff.get(address).content.decode()))
    entered = {**sent, "args": "[]", "kwargs": "{}", "queue": "homeq", "priority": 0, "delay": ""}
    response = staff.post(address, entered, follow=True)
    job = Job.objects.get(queue="homeq")
    assert response.redirect_chain == [(f"{ADMIN}job/{job.pk}/change/", 302)]
    assert LogEntry.objects.get().change_message == "Enqueued by the form."


def test_sidebar_leads_to_lists_of_the_database_but_for_schedules(staff, filled):
    text = page(staff, "job/", database=filled)
    sidebar = text[text.index('id="nav-sidebar"') :].partition("</nav>")[0]
    assert f'"{ADMIN}queue/?database={filled}"' in sidebar
    assert f'"{ADMIN}schedule/"' in sidebar
    assert f"database={filled}?" not in sidebar


# A database that is not there


def test_unknown_database_is_named_and_nothing_is_changed(staff, filled):
    response = staff.get(f"{ADMIN}job/", {"database": "nowhere"}, follow=True)
    assert response.redirect_chain == [(f"{ADMIN}job/", 302)]
    said = "No database nowhere has a queue. Nothing was changed; this is default."
    assert messages_of(response) == [said]
    job = Job.objects.get(queue="homeward")
    response = confirm(staff, f"{ADMIN}job/kill/?database=nowhere", job.pk)
    assert messages_of(response)[0] == said
    assert Job.objects.filter(pk=job.pk).exists()


@pytest.mark.parametrize("name", ["other", "nowhere"])
def test_database_tells_those_nothing_who_may_not_see_it(shard, name):
    address = f"{ADMIN}job/?database={name}"
    assert Client().get(address).url == f"/admin/login/?next={quote(address, safe='/')}"
    assert user_with().get(address).status_code == 403


def test_error_of_another_database_is_not_blamed_on_the_one_that_is_shown(staff, filled, monkeypatch):
    def ended(*_args, **_options):
        raise OperationalError("the connection of the log has ended")

    monkeypatch.setattr(LogEntry.objects, "log_actions", ended)
    job = Job.objects.using(filled).get(queue="abroad")
    with pytest.raises(OperationalError, match="of the log"):
        confirm(staff, f"{ADMIN}job/kill/?database={filled}", job.pk)
    assert Job.objects.using(filled).filter(pk=job.pk).exists()


def test_database_that_is_away_says_why_and_the_others_are_shown(staff, far, other_server):
    job = noop.using(database=far).enqueue()
    assert str(job.id) in page(staff, "job/", database=far)
    other_server.stop()
    for _ in range(2):  # with a connection that was cut off, and without one
        response = staff.get(f"{ADMIN}job/", {"database": far})
        assert response.status_code == 503
        text = html.unescape(response.content.decode())
        assert "The database other does not answer: " in text
        assert f'<a href="{ADMIN}job/?database={far}">Try again</a>' in text
        assert f'<a href="{ADMIN}job/">default</a>' in text
        assert "is not known" not in text
    response = staff.post(f"{ADMIN}job/kill/?database={far}", {"ids": job.id, "confirmed": "yes"})
    assert response.status_code == 503
    assert "Try again" not in response.content.decode()
    assert "Whether a change that you just asked for was made is not known." in response.content.decode()
    assert user_with().get(f"{ADMIN}job/", {"database": far}).status_code == 403
    page(staff, "job/")
    other_server.restart("fast")
    assert str(job.id) in page(staff, "job/", database=far)


def test_database_that_is_away_is_connected_to_once(staff, far, other_server, monkeypatch):
    other_server.stop()
    connections[far].close()
    connect, tries = connections[far].connect, []
    monkeypatch.setattr(connections[far], "connect", lambda: tries.append(1) or connect())
    assert staff.get(f"{ADMIN}job/", {"database": far}).status_code == 503
    assert len(tries) == 1


def test_first_database_that_is_away_leads_to_the_others(staff, far, other_server, settings):
    shards = {far: {"number": 1}, "default": {"number": 0}}
    settings.PGQUEUE = settings.PGQUEUE | {"DATABASE": far, "SHARDS": shards}
    other_server.stop()
    connections[far].close()
    for address in ("job/", "overview/"):
        response = staff.get(f"{ADMIN}{address}")
        assert response.status_code == 503
        text = html.unescape(response.content.decode())
        assert "The database other does not answer: " in text
        assert f'<a href="{ADMIN}{address}?database=default">default</a>' in text
    page(staff, "job/", database="default")


def test_page_leaves_no_database_behind(staff, filled):
    page(staff, "job/", database=filled)
    staff.get(f"{ADMIN}job/", {"database": "nowhere"})
    assert conf.database_here == "default"


def test_first_page_of_causes_is_that_of_the_same_database(staff, filled):
    address = f"{ADMIN}deadjob/causes/?database={filled}"
    assert staff.get(address).context["first"] == ""
    assert staff.get(f"{address}&after=x").context["first"] == address
