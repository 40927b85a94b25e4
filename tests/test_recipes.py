"""The pieces of code of docs/how-to/recipes.md, idempotency.md and hand-out.md do what the pages say of them."""

import contextlib
import datetime as dt
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from unittest import mock
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import django
import pytest
from django.conf import global_settings
from django.core import mail
from django.core.mail import EmailMultiAlternatives
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection, models, transaction
from django.test.utils import isolate_apps
from django.urls import path
from django.utils import timezone

from django_pgqueue import Discard, Retry, registry
from django_pgqueue.flow.concurrency import admit
from django_pgqueue.jobs import retry
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.direct_run import call_here
from django_pgqueue.models import DeadJob, Job, OnceKey, SucceededJob
from django_pgqueue.testing import assert_not_enqueued, run_job, run_jobs
from tests.support.pages import DOCS
from tests.support.pieces import pieces
from tests.support.providers import Answer, Provider

RECIPES = pieces(DOCS / "how-to" / "recipes.md")
IDEMPOTENCY = pieces(DOCS / "how-to" / "idempotency.md")
HANDING_OUT = pieces(DOCS / "how-to" / "hand-out.md")

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(registry_of, code):
    """Run a piece in a module of its own, with what it leaves out."""

    def execute(piece: str, **given: object) -> ModuleType:
        module = ModuleType("tests.app.a_recipe")
        module.__dict__.update(given)
        exec(compile(piece, "a recipe", "exec"), module.__dict__)
        registry._late.clear()  # as tasks that workers load
        return module

    return execute


@pytest.fixture
def provider():
    with Provider() as server:
        yield server


class Rows:
    """Stands for a model with one row."""

    def __init__(self, **fields: object) -> None:
        self.row = SimpleNamespace(pk=17, **fields)
        self.objects = mock.MagicMock()
        self.objects.get.return_value = self.row
        self.objects.create.side_effect = self.create
        self.objects.filter.return_value.update.side_effect = self.row.__dict__.update

    def create(self, **fields: object) -> SimpleNamespace:
        self.row.__dict__.update(fields, save=lambda: None)
        return self.row


def test_each_recipe_is_run_below():
    assert {*RECIPES} == {
        "E-mail backend",
        "Webhook sender",
        "One after the other",
        "Long import that resumes",
        "Large payloads",
    }


class TestEmailBackend:
    @pytest.fixture
    def backend(self, run):
        recipe = RECIPES["E-mail backend"]
        if django.VERSION >= (6, 1):
            recipe = recipe.replace("SmtpBackend().", 'mail.mailers["smtp"].')
        module = run(recipe, mail=mail)
        module.SmtpBackend = EmailBackend
        return module.QueueBackend()

    def test_mail_is_part_of_the_transaction(self, backend):
        with transaction.atomic():
            assert backend.send_messages([EmailMultiAlternatives("Hello", "Text", to=["ada@example.com"])]) == 1
            transaction.set_rollback(True)
        assert_not_enqueued()

    def test_mail_is_as_it_was(self, backend):
        message = EmailMultiAlternatives("Hello", "Text", "a@b.example", ["c@b.example"], bcc=["d@b.example"])
        message.attach_alternative("<p>Text</p>", "text/html")
        backend.send_messages([message])
        run_jobs()
        [sent] = mail.outbox
        assert sent.recipients() == ["c@b.example", "d@b.example"]
        assert (sent.subject, sent.body, sent.from_email) == ("Hello", "Text", "a@b.example")
        assert [[*one] for one in sent.alternatives] == [["<p>Text</p>", "text/html"]]
        assert sent.extra_headers["Message-ID"].startswith("<")

    def test_attachments_are_refused(self, backend):
        message = EmailMultiAlternatives("Hello", "Text", to=["c@b.example"])
        message.attach("a.txt", "text", "text/plain")
        with pytest.raises(ValueError, match="attachments"):
            backend.send_messages([message])


def test_webhook_that_is_refused_is_sent_again_with_its_key(run):
    module = run(RECIPES["Webhook sender"])
    with mock.patch.object(module, "urlopen", side_effect=[OSError(), mock.Mock()]) as opened:
        handle = module.post_event.enqueue("https://example.com/", {"paid": 17})
        run_jobs(until=dt.timedelta(minutes=1), errors="collect")
    keys = [call.args[0].get_header("Idempotency-key") for call in opened.call_args_list]
    assert keys == [f"job-{handle.id}"] * 2


def test_second_step_follows_the_first(run):
    orders = Rows(is_packed=False)
    run(RECIPES["One after the other"], Order=orders).pack.enqueue(17)
    assert [attempt.task.rpartition(".")[2] for attempt in run_jobs().succeeded] == ["pack", "ship"]


def test_import_goes_on_where_the_attempt_before_has_ended(run):
    saved, fails = [], iter([False, True, False, False])

    def save(rows):
        if next(fails):
            raise OSError
        saved.extend(rows)

    module = run(RECIPES["Long import that resumes"], read=lambda path: [*range(1200)], save=save)
    module.import_rows.enqueue("a.csv")
    run_jobs(until=dt.timedelta(minutes=1), errors="collect")
    assert saved == [*range(1200)]
    assert SucceededJob.objects.get().progress["done"] == 1200


class TestLargePayloads:
    @pytest.fixture
    def recipe(self, run, settings, tmp_path, monkeypatch):
        of_settings, payloads, tasks = re.split(r"(?m)^(?=# \S+\.py$)", RECIPES["Large payloads"])[1:]
        given = {"BASE_DIR": tmp_path}  # a settings file of Django's has no STORAGES
        exec(of_settings, given)
        settings.STORAGES = given["STORAGES"]
        assert {*global_settings.STORAGES} < {*settings.STORAGES}
        monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
        monkeypatch.setitem(sys.modules, "shop.payloads", module := run(payloads))
        self.saved = []
        self.upload = run(tasks, save=self.saved.append).upload
        return module

    def test_what_is_large_is_stored_and_read_by_each_attempt(self, recipe):
        small, large = ["x"], ["x" * recipe.LARGE]
        for rows in (small, large):
            self.upload(rows)
        kept, stored = (job.args[0] for job in Job.objects.order_by("id"))
        assert kept == {"value": small}
        assert [*stored] == ["stored"]
        run_jobs()
        assert self.saved == [small, large]
        assert recipe.read(stored) == large

    def test_old_files_are_deleted(self, recipe, monkeypatch):
        recipe.delete_old_payloads()
        old = recipe.put_aside("x" * recipe.LARGE)
        later = timezone.now() + recipe.KEPT + dt.timedelta(days=2)
        monkeypatch.setattr(recipe.timezone, "now", lambda: later)
        new = recipe.put_aside("y" * recipe.LARGE)
        recipe.delete_old_payloads()
        assert recipe.storages["jobs"].exists(new["stored"])
        assert not recipe.storages["jobs"].exists(old["stored"])


def test_pieces_on_idempotency_run(run):
    run(IDEMPOTENCY["Atomic database writes"])


class TestProviders:
    """The guide to idempotency, with providers that lose an answer after they have done the work."""

    @pytest.fixture
    def payments(self, provider, settings):
        """Charge once for each key; the first answer is lost."""
        settings.PAYMENTS_URL = provider.url
        by_key = {}

        def charge(request):
            known = request.headers["Idempotency-Key"] in by_key
            by_key.setdefault(request.headers["Idempotency-Key"], json.loads(request.body))
            return Answer({"id": "ch_1"}) if known else None

        provider.answers = charge
        return by_key

    def test_card_is_charged_once_although_the_answer_is_lost(self, run, payments):
        order = Rows(paid_at=None, cents=990)
        handle = run(IDEMPOTENCY["A payment provider"], Order=order).charge.enqueue(17)
        report = run_jobs(until=dt.timedelta(minutes=1), errors="collect")
        assert [one.attempt for one in report] == [1, 2]
        assert payments == {f"job-{handle.id}": {"amount": 990, "currency": "eur"}}
        assert order.row.charge_id == "ch_1"

    def test_key_stays_when_the_dead_job_is_retried_and_its_beginning_is_a_setting(self, run, provider, settings):
        settings.PAYMENTS_URL, settings.PGQUEUE = provider.url, {"IDEMPOTENCY_PREFIX": "shop-test-"}
        provider.answers = lambda request: Answer({}, status=402)
        handle = run(IDEMPOTENCY["A payment provider"], Order=Rows(paid_at=None, cents=1)).charge.enqueue(17)
        run_jobs()
        assert DeadJob.objects.get().reason == "discarded"
        retry([handle.id])
        provider.answers = lambda request: Answer({"id": "ch_1"})
        run_jobs()
        keys = [request.headers["Idempotency-Key"] for request in provider.requests]
        assert keys == [f"shop-test-{handle.id}"] * 2

    def test_provider_that_is_busy_is_asked_again_when_it_says(self, run, provider, settings):
        settings.PAYMENTS_URL = provider.url
        answers = iter([Answer({}, status=429, headers={"Retry-After": "30"}), Answer({"id": "ch_1"})])
        provider.answers = lambda request: next(answers)
        run(IDEMPOTENCY["A payment provider"], Order=Rows(paid_at=None, cents=1)).charge.enqueue(17)
        begun = timezone.now()
        assert len(run_jobs(errors="collect")) == 1
        assert Job.objects.get().run_at >= begun + dt.timedelta(seconds=30)
        assert len(run_jobs(until=dt.timedelta(minutes=1)).succeeded) == 1

    def test_mail_is_sent_once_although_the_answer_is_lost(self, run, provider, settings):
        settings.MAILS_URL = provider.url
        sent = []

        def mails(request):
            if request.body:
                sent.append(json.loads(request.body))
                return None
            [reference] = parse_qs(urlsplit(request.path).query)["reference"]
            return Answer([mail for mail in sent if mail["reference"] == reference])

        provider.answers = mails
        order = Rows(receipt_sent_at=None, email="ada@example.com")
        handle = run(IDEMPOTENCY["An e-mail provider"], Order=order).send_receipt.enqueue(17)
        report = run_jobs(until=dt.timedelta(minutes=1), errors="collect")
        assert [one.attempt for one in report] == [1, 2]
        assert sent == [{"to": "ada@example.com", "template": "receipt", "reference": f"job-{handle.id}"}]
        assert order.row.receipt_sent_at is not None


@pytest.mark.django_db(transaction=True)
def test_event_is_handled_once_however_often_and_at_the_same_time_it_arrives(run, live_server, settings):
    counted = mock.Mock()
    module = run(
        IDEMPOTENCY["A webhook receiver"],
        Order=Rows(paid_by=None),
        has_valid_signature=lambda request: request.headers["Signature"] == "right",
        count_sale=counted,
    )
    module.urlpatterns = [path("webhook/", module.webhook)]
    settings.ROOT_URLCONF = module

    def deliver(event, signature="right"):
        body, headers = json.dumps({"id": event, "order": 17}).encode(), {"Signature": signature}
        return urlopen(Request(f"{live_server.url}/webhook/", body, headers)).status

    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(deliver, ["evt_1"] * 8 + ["evt_2"])} == {204}
    with pytest.raises(HTTPError, match="400"):
        deliver("evt_3", signature="wrong")
    assert len(run_jobs().succeeded) == 2, "a job for each event"
    counted.enqueue.assert_called_once_with(17)
    assert set(OnceKey.objects.values_list("key", flat=True)) == {"payments:evt_1", "payments:evt_2", "paid:17"}


# Handing out


@pytest.mark.django_db(transaction=True)
def test_each_running_job_has_an_api_key_of_its_own(run, queue, settings):
    settings.TRANSLATION_KEYS = ["key-a", "key-b"]
    provider = mock.Mock(**{"translate.side_effect": lambda text, api_key: api_key})
    translate = run(HANDING_OUT["One for each running job"], provider=provider).translate
    translate.enqueue_many([("one",), ("two",), ("three",)])
    admit(queue, list(Job.objects.values_list("concurrency_key", flat=True)))
    running = claim(queue, "default", limit=3, worker_id=1)
    assert [CurrentJob(job).slot for job in running] == [1, 2]
    used = [call_here(translate, job, CurrentJob(job)) for job in running]
    assert used == settings.TRANSLATION_KEYS
    assert run_job(translate.bind("alone")) == "key-a"


@pytest.fixture
def seats():
    with isolate_apps("tests.app"):

        class Seat(models.Model):
            booking_id = models.IntegerField(null=True, unique=True)

            class Meta:
                app_label = "app"

    with connection.schema_editor() as editor:
        editor.create_model(Seat)
    Seat.objects.bulk_create([Seat() for _ in range(5)])
    yield Seat
    with connection.schema_editor() as editor:
        editor.delete_model(Seat)


def assigned(task, booking_id) -> bool:
    """Run the task until it has a seat, or there is none; in a thread."""
    try:
        while True:
            with contextlib.suppress(Retry):
                run_job(task.bind(booking_id))
                return True
    except Discard:
        return False
    finally:
        connection.close()


@pytest.mark.django_db(transaction=True)
def test_seats_go_to_one_booking_each_and_all_of_them(run, seats):
    assign_seat = run(HANDING_OUT["Seats and addresses"], Seat=seats).assign_seat
    with ThreadPoolExecutor(4) as pool:
        won = [*pool.map(lambda number: assigned(assign_seat, number), [*range(8), *range(8)])]
    bookings = {number for number, has_seat in zip([*range(8)] * 2, won, strict=True) if has_seat}
    assert len(bookings) == 5
    assert set(seats.objects.values_list("booking_id", flat=True)) == bookings


@pytest.mark.django_db(transaction=True)
def test_seat_that_another_is_about_to_take_is_not_sold_yet(run, seats):
    assign_seat = run(HANDING_OUT["Seats and addresses"], Seat=seats).assign_seat
    others = connection.copy()
    with contextlib.closing(others), others.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE app_seat SET booking_id = id + 100")
        with pytest.raises(Retry):
            run_job(assign_seat.bind(17))
        cursor.execute("ROLLBACK")
        run_job(assign_seat.bind(17))
        cursor.execute("UPDATE app_seat SET booking_id = id + 100")
        with pytest.raises(Discard, match="sold out"):
            run_job(assign_seat.bind(18))
