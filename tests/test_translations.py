"""The admin in other languages: the catalogues are whole, and what is not for people stays English."""

import ast
import contextlib
import datetime as dt
import gettext
import re
from io import StringIO
from pathlib import Path

import django
import pytest
from babel.messages import Catalog
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils.translation import override

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.doctor import findings
from django_pgqueue.insights.formatting import at_most, grouped, short
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob
from tests.messages import CATALOGUES, KEYWORDS, PACKAGE, ROOT, as_mo, as_po, brought_up_to_date, compiled, marked, read
from tests.messages import untranslated as left_in
from tests.support.schedules import make
from tests.support.stats_command import told
from tests.support.worker_rows import forget_others

ADMIN = "/admin/pgqueue/"
WHAT_TO_DO = (
    "Words were marked, changed or removed. Run `make messages`, translate what it names in {path}, and run it again: "
    "see Translations in CONTRIBUTING.md."
)
PLACEHOLDERS = re.compile(r"%\(\w+\)[a-z]|(?<!%)%[a-z]|\{\w*\}")

catalogues = pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parent.parent.name)


@pytest.fixture(scope="module")
def words() -> Catalog:
    return marked()


@catalogues
def test_catalogue_has_what_is_marked_and_nothing_else(path, words):
    assert as_po(brought_up_to_date(read(path), words)) == path.read_bytes(), WHAT_TO_DO.format(
        path=path.relative_to(ROOT)
    )


@catalogues
def test_all_is_translated(path):
    catalogue = read(path)
    assert left_in(catalogue) == [], WHAT_TO_DO.format(path=path.relative_to(ROOT))
    assert [message.id for message in catalogue if message.id and message.fuzzy] == []


@catalogues
def test_compiled_catalogue_is_that_of_the_text(path, words):
    assert compiled(path).read_bytes() == as_mo(brought_up_to_date(read(path), words)), "Run `make messages`."


@catalogues
def test_translations_have_the_placeholders_of_the_words(path):
    """The last form has those of the plural; the others may leave out the number, which is one."""
    for message in read(path):
        if message.id:
            one, many = (message.id if message.pluralizable else (message.id,) * 2)[:2]
            forms = message.string if message.pluralizable else (message.string,)
            for form in forms:
                assert _names(form) <= _names(one) | _names(many), (message.id, form)
            assert _names(forms[-1]) == _names(many), (message.id, forms[-1])
            assert _names(forms[0]) >= _names(one) & _names(many), (message.id, forms[0])


def _names(text: str) -> set[str]:
    return set(PLACEHOLDERS.findall(text.replace("%%", "")))


@catalogues
def test_words_that_django_has_too_are_djangos(path):
    """Catalogues of all apps are merged into one: another translation here would change pages that are not ours."""
    language = path.parent.parent.name
    theirs = {}
    for compiled_by_django in Path(django.__file__).parent.glob(f"**/locale/{language}/LC_MESSAGES/django.mo"):
        with compiled_by_django.open("rb") as file:
            theirs |= gettext.GNUTranslations(file)._catalog
    ours = {message.id: message.string for message in read(path) if isinstance(message.id, str) and not message.context}
    differ = {
        text: (ours[text], theirs[text]) for text in ours.keys() & theirs.keys() if text and ours[text] != theirs[text]
    }
    assert ours.keys() & theirs.keys() > {"", "Yes"}
    assert not differ, "Say them as Django does, or give them a context by pgettext."


def test_marked_words_can_be_found():
    """What is marked is a text as it stands, and not inside an f-string, where some Pythons do not look."""
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        inside = {id(node) for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for node in ast.walk(text)}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) in KEYWORDS]
        for call in calls:
            assert isinstance(call.args[0], ast.Constant), f"{path}:{call.lineno}"
            assert id(call) not in inside, f"{path}:{call.lineno}"


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def test_catalogue_is_brought_up_to_date(tmp_path):
    """What is translated stays, with its comments; what is not marked any more goes."""
    path = tmp_path / "de" / "LC_MESSAGES" / "django.po"
    path.parent.mkdir(parents=True)
    path.write_text(
        '# A head\n#   in columns\n\nmsgid ""\nmsgstr ""\n\n# said so\nmsgid "stays"\nmsgstr "bleibt"\n\n'
        'msgid "becomes plural"\nmsgstr "wird Plural"\n\nmsgid "goes"\nmsgstr "geht"\n'
    )
    marked_now = Catalog()
    marked_now.add("stays")
    marked_now.add(("becomes plural", "become plural"))
    marked_now.add("new", context="of today")
    new = brought_up_to_date(read(path), marked_now)
    assert {message.id: message.string for message in new if message.id} == {
        "stays": "bleibt",
        ("becomes plural", "become plural"): ("", ""),
        "new": "",
    }
    assert left_in(new) == ["('becomes plural', 'become plural')", "new"]
    text = as_po(new).decode()
    assert text.startswith("# A head\n#   in columns\n")
    assert "# said so\n" in text
    assert "Date" not in text
    path.write_text(text)
    assert as_po(brought_up_to_date(read(path), marked_now)) == text.encode()


# What people see


@pytest.fixture
def admin(db) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    return client


def page(client: Client, address: str, language: str = "de", **posted) -> str:
    ask = client.post if posted else client.get
    response = ask(f"{ADMIN}{address}", posted or None, headers={"Accept-Language": language})
    assert response.status_code == 200
    content = response.content.decode()
    assert f'<html lang="{language}"' in content
    return " ".join(re.sub(r"<[^>]+>", " ", content.partition('id="content"')[2]).split())


def test_overview_is_german(admin):
    app.noop.using(queue="mail").enqueue()
    shown = page(admin, "overview/")
    for text in (
        "Übersicht",
        "Es ist kein Worker aktiv, und Jobs warten in: mail.",
        "mittlere Wartezeit",
        "Als Tabelle",
    ):
        assert text in shown


def test_page_of_a_job_is_german(admin):
    job_id = app.record.using(delay=dt.timedelta(hours=1), queue="mail").enqueue().id
    queues.pause("mail", by="eve", reason="moving house")
    shown = page(admin, f"job/{job_id}/change/")
    for text in ("Zeitleiste", "Status geplant", "pausiert seit", "moving house", "Zeitlimit in Sekunden"):
        assert text in shown


def test_dead_job_tells_its_reason_in_german(admin):
    job_id = app.noop.enqueue().id
    kill([job_id], by="eve")
    assert "tot: getötet" in page(admin, f"deadjob/{job_id}/change/")
    assert "abgelaufen" in page(admin, "deadjob/")


def test_confirmation_is_german(admin):
    ids = [app.noop.enqueue().id for _ in range(2)]
    shown = page(admin, "job/kill/", ids=",".join(map(str, ids)))
    assert "2 Jobs töten?" in shown
    assert "Laufende Jobs werden innerhalb einiger Sekunden von ihren Workern beendet" in shown
    one = page(admin, "job/kill/", ids=str(ids[0]))
    assert "1 Job töten?" in one


def test_form_of_a_schedule_is_german(admin):
    """Its texts are put together when the page is shown, and not when the code is loaded."""
    shown = page(admin, "schedule/add/")
    assert "Ein JSON-Objekt, wie in" in shown
    assert "der letzte" in shown


def test_meaning_of_a_cron_entry_is_told_in_english_only(admin):
    """The library that tells it speaks nothing else."""
    make("daily", cron="0 9 * * *", every_seconds=None)
    assert "At 09:00" in page(admin, "schedule/", "en")
    shown = page(admin, "schedule/")
    assert "At 09:00" not in shown
    assert "0 9 * * *" in shown


@pytest.mark.parametrize("language", ["en", "en-gb"])
def test_default_stays_english(admin, language):
    app.noop.using(queue="mail").enqueue()
    shown = page(admin, "overview/", language)
    assert "No worker is alive, and jobs wait in: mail." in shown
    assert "mean wait" in shown


# What stays English


@pytest.mark.django_db
@pytest.mark.parametrize("language", ["de", "en-us"])
def test_commands_speak_english_whatever_the_language_of_the_project(settings, language):
    settings.LANGUAGE_CODE = language
    job_id = app.noop.using(queue="mail").enqueue().id
    queues.pause("mail", by="eve", reason="moving house")
    dead_id = app.noop.enqueue().id
    kill([dead_id], by="eve")
    make("often", every_seconds=2 * 86400)
    for command, text in (
        (("pgqueue_jobs", "show", str(job_id)), "Its queue 'mail' is paused by eve since"),
        (("pgqueue_jobs", "show", str(dead_id)), "Died (killed)"),
        (("pgqueue_queues", "list"), "by eve since"),
        (("pgqueue_schedules", "list"), "2 days, 0:00:00"),
        (("pgqueue_retention",), "Succeeded jobs are kept"),
        (("pgqueue_stats",), "mail"),
        (("pgqueue_doctor",), "No worker is alive"),
    ):
        out = StringIO()
        with contextlib.suppress(CommandError):  # the doctor has found something
            call_command(*command, stdout=out, skip_checks=True)
        assert text in out.getvalue()
        assert not re.search(r"Worker|pausiert|getötet|Tage", out.getvalue())


@pytest.mark.django_db
def test_each_look_of_stats_is_english(sql):
    forget_others(sql)
    with override("de"):
        assert [finding["what"] for finding in told()["findings"]] == ["No worker is alive."]


@pytest.mark.django_db
def test_what_is_stored_is_english(admin):
    """The audit log and a job's history outlive the language of the user who wrote them."""
    job_id = app.noop.enqueue().id
    answer = admin.post(
        f"{ADMIN}job/kill/", {"ids": job_id, "confirmed": "yes"}, headers={"Accept-Language": "de"}, follow=True
    )
    assert "1 Job wurde getötet." in answer.content.decode()
    assert admin.get(f"{ADMIN}deadjob/{job_id}/history/").context["action_list"][0].change_message == "Killed."
    assert DeadJob.objects.get(pk=job_id).reason == "killed"


def test_numbers_are_those_of_the_language():
    with override("de"):
        assert (grouped(12_345), at_most(10_001, 10_000), short(1.25)) == ("12.345", "10.000+", "1,25")
    with override("en"):
        assert (grouped(12_345), at_most(10_001, 10_000), short(1.25)) == ("12,345", "10,000+", "1.25")


@pytest.mark.django_db
def test_findings_are_in_the_language_of_who_looks():
    with override("de"):
        assert {finding.what for finding in findings()} & {"Es ist kein Worker aktiv."}
    with override("en"):
        assert {finding.what for finding in findings()} & {"No worker is alive."}
