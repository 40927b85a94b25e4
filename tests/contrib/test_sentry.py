"""Events in Sentry, by its own SDK, with the integrations that it has in every Django project."""

import asyncio
import json
import logging

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

import tests.app.tasks as app
from django_pgqueue import current_job, finish_job
from django_pgqueue.jobs.failure import unknown_task
from django_pgqueue.logs import report_all
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.signals import attempt_ended
from tests.app import contract
from tests.support.claimed import job as claimed_job
from tests.support.running import run_claimed


class Posted(Transport):
    """A transport that keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.events = []

    def capture_envelope(self, envelope):
        self.events += [event for item in envelope.items if (event := item.get_event())]


@pytest.fixture(scope="session")
def integrations():
    """What the SDK connects and patches once in a process, at the first ``init``, and leaves so."""
    before = sentry_sdk.get_client()
    sentry_sdk.init()
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(before)


@pytest.fixture
def posted(integrations):
    """The events that arrive; nothing is set up besides the DSN."""
    before = sentry_sdk.get_client()
    transport = Posted()
    sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=transport)
    with sentry_sdk.isolation_scope():
        yield transport.events
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(before)


def attempt(queue):
    """Do what a worker does for one attempt, its lines in the log included."""
    outcomes = run_claimed(queue)
    report_all(outcomes, stale=())
    return outcomes


def frames(event):
    return [frame for value in event["exception"]["values"] for frame in value["stacktrace"]["frames"]]


@pytest.mark.parametrize("kind", ["plain", "async", "framework"])
def test_each_failed_attempt_arrives_once(queue, posted, registry_of, kind):
    def fail(order):
        raise ValueError(f"no luck with {order}")

    async def afail(order):
        await asyncio.sleep(0)
        fail(order)

    task = {
        "plain": lambda: registry_of(fail, max_attempts=3, backoff=0),
        "async": lambda: registry_of(afail, max_attempts=3, backoff=0),
        "framework": lambda: contract.fail.using(max_attempts=3),
    }[kind]()
    task.using(**({} if kind == "framework" else {"queue": "default"})).enqueue("7 spoons")
    job = Job.objects.get()
    for number in (1, 2, 3):
        Job.objects.update(run_at="2026-01-01T00:00Z")
        assert attempt(queue)
        assert len(posted) == number
    for number, event in enumerate(posted, start=1):
        [raised] = event["exception"]["values"]
        assert raised["type"] == "ValueError"
        assert raised["mechanism"] == {"type": "django_pgqueue", "handled": False}
        assert frames(event)[-1]["function"] == "fail"
        assert event["tags"] == {
            "job.id": str(job.id),
            "job.task": job.task,
            "job.queue": "default",
            "job.attempt": str(number),
        }
        assert (event["transaction"], event["transaction_info"]) == (job.task, {"source": "task"})
        assert event["contexts"]["job"]["args"] == ["7 spoons"]
        assert event["contexts"]["job"]["max_attempts"] == 3
    assert [event["level"] for event in posted] == ["warning", "warning", "error"]
    assert [event["contexts"]["outcome"]["fate"] for event in posted] == ["retried", "retried", "died"]
    assert posted[-1]["contexts"]["outcome"]["reason"] == "exhausted"
    assert DeadJob.objects.exists()


def test_attempt_that_succeeds_or_asks_to_run_later_is_no_event(queue, posted):
    app.record.enqueue("a")
    app.snooze.enqueue(5)
    assert [attempt(queue)[0].fate.word, attempt(queue)[0].fate.word] == ["succeeded", "snoozed"]
    assert posted == []


def test_job_that_is_killed_is_no_event(queue, posted, registry_of):
    def stop():
        current_job().is_kill_requested = True
        raise RuntimeError("stopped")

    registry_of(stop).enqueue()
    assert attempt(queue)[0].reason == "killed"
    assert posted == []


def test_job_of_an_unknown_task_arrives_once_it_is_dead(posted):
    report_all([unknown_task(claimed_job(task="gone", is_old=True))], stale=())
    [event] = posted
    assert event["logentry"]["message"].startswith("Dead: job %s")
    assert event["extra"]["task"] == "gone"


CARD, SECRET = 4111111111111111, "open-sesame"


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_sensitive_arguments_are_nowhere_in_the_event(queue, posted, registry_of, kind):
    def pay(user, card, password, pin):
        number, copies = card, {"deep": [{"password": password}], "text": f"<{password}>"}
        logging.getLogger("shop").info("paying with %s", card)
        sentry_sdk.add_breadcrumb(message=f"card {number}", data={"all": copies})
        raise ValueError(f"{password} was refused for {number}")

    async def apay(user, card, password, pin):
        pay(user, card, password, pin)

    task = registry_of(pay if kind == "plain" else apay, sensitive_parameters=["card", "pin"], max_attempts=1)
    task.enqueue("ann", CARD, password=SECRET, pin=12)
    attempt(queue)
    [event] = posted
    assert event["contexts"]["job"]["args"] == ["ann", "[redacted]"]
    assert event["contexts"]["job"]["kwargs"] == {"password": "[redacted]", "pin": "[redacted]"}
    assert event["exception"]["values"][0]["value"] == "[redacted] was refused for [redacted]"
    [frame] = [frame for frame in frames(event) if frame["function"] == "pay"]
    seen = frame["vars"]
    assert (seen["user"], seen["card"], seen["pin"]) == ("'ann'", "[redacted]", "[redacted]"), "too short to be sought"
    assert not any("vars" in frame for frame in frames(event) if frame["module"].startswith("django_pgqueue."))
    text = json.dumps(event, default=str)
    assert SECRET not in text
    assert str(CARD) not in text


def test_event_that_cannot_be_cleaned_is_not_sent(queue, posted, registry_of, monkeypatch, caplog):
    def pay(password):
        raise ValueError(f"{password} was refused")

    registry_of(pay, max_attempts=1).enqueue(SECRET)
    monkeypatch.setattr("django_pgqueue.contrib.sentry.scrubber_of", lambda *_: 1 / 0)
    attempt(queue)
    assert posted == []
    assert "is kept from Sentry: it cannot be cleaned" in caplog.text
    assert SECRET not in caplog.text


def test_task_whose_arguments_are_all_sensitive_shows_no_variables(queue, posted, registry_of):
    def sign(text):
        raise ValueError("no ink")

    registry_of(sign, sensitive_parameters=True, max_attempts=1).enqueue("dear diary")
    attempt(queue)
    [event] = posted
    assert "dear diary" not in json.dumps(event, default=str)
    assert event["contexts"]["job"]["args"] == "[redacted]"


def test_error_of_the_framework_with_something_sensitive_arrives_once(queue, posted):
    contract.refuse.enqueue(SECRET)
    attempt(queue)
    [event] = posted
    assert SECRET not in json.dumps(event, default=str)
    assert event["exception"]["values"][-1]["value"] == "[redacted] is not the password"


@pytest.mark.django_db(transaction=True)
def test_error_after_the_end_of_a_job_arrives_without_what_is_sensitive(queue, posted, registry_of):
    def pay(password):
        with finish_job():
            pass
        raise ValueError(f"{password} is not the password")

    registry_of(pay).enqueue(SECRET)
    attempt(queue)
    [event] = posted
    assert SECRET not in json.dumps(event, default=str)
    assert "[redacted] is not the password" in event["exception"]["values"][-1]["value"]


def test_error_that_the_task_has_logged_itself_arrives_once(queue, posted, registry_of):
    def log_and_raise():
        try:
            raise ValueError("no luck")
        except ValueError:
            logging.getLogger("shop").exception("It went wrong")
            raise

    registry_of(log_and_raise, max_attempts=1).enqueue()
    attempt(queue)
    [event] = posted
    assert event["tags"]["job.task"].endswith("log_and_raise")


def test_what_a_job_leaves_in_the_scope_is_gone_with_it(queue, posted, registry_of):
    def leave():
        sentry_sdk.add_breadcrumb(message="left behind")
        sentry_sdk.set_tag("left", "behind")
        sentry_sdk.set_user({"id": 7})

    def fail():
        raise ValueError

    async def aleave():
        leave()

    async def afail():
        await asyncio.sleep(0)
        raise ValueError

    sentry_sdk.add_breadcrumb(message="of the worker")
    for one, other in ((leave, fail), (aleave, afail)):
        registry_of(one).enqueue()
        registry_of(other, max_attempts=1).enqueue()
        attempt(queue)
        attempt(queue)
    assert len(posted) == 2
    traces = {sentry_sdk.get_isolation_scope().get_trace_context()["trace_id"]}
    for event in posted:
        assert "user" not in event
        assert "left" not in event["tags"]
        assert event["contexts"]["trace"]["trace_id"] not in traces, "else Sentry shows them as one story"
        traces.add(event["contexts"]["trace"]["trace_id"])
        messages = [crumb.get("message") for crumb in event["breadcrumbs"]["values"]]
        assert not {"left behind", "of the worker"} & set(messages)


def test_jobs_side_by_side_on_the_event_loop_do_not_share_a_scope(queue, posted, registry_of):
    """As the lanes of a worker do it: one asyncio task for each job, in one thread."""
    from django_pgqueue import registry
    from django_pgqueue.jobs.claim import claim
    from django_pgqueue.jobs.context import CurrentJob
    from django_pgqueue.jobs.executor import arun
    from django_pgqueue.jobs.interrupts import LaneInterrupts

    started = []

    async def meet(label):
        sentry_sdk.set_tag("label", label)
        sentry_sdk.add_breadcrumb(message=label)
        started.append(label)
        while len(started) < 2:  # noqa: ASYNC110 - a turn of the loop each, not a time
            await asyncio.sleep(0)
        raise ValueError(label)

    task = registry_of(meet, max_attempts=1)
    for label in ("one", "two"):
        task.enqueue(label)
    jobs = claim(queue, "default", limit=10, worker_id=1)

    async def run_all():
        border = LaneInterrupts(asyncio.get_running_loop())
        await asyncio.gather(*(arun(registry.find(job.task), job, CurrentJob(job), border) for job in jobs))

    asyncio.run(run_all())
    assert len(posted) == 2
    for event in posted:
        label = event["exception"]["values"][0]["value"]
        assert event["tags"]["label"] == label
        assert [crumb["message"] for crumb in event["breadcrumbs"]["values"]] == [label]


def test_receiver_that_fails_is_an_event_of_its_own(queue, posted):
    def fail(**_):
        raise SystemExit("a broken receiver")

    attempt_ended.connect(fail)
    try:
        app.record.enqueue("a")
        attempt(queue)
    finally:
        attempt_ended.disconnect(fail)
    [event] = posted
    assert event["logentry"]["message"].startswith("Receivers of a signal failed")


def test_nothing_is_done_where_sentry_is_not_set_up(queue):
    from django_pgqueue.contrib.sentry import reporting_run

    assert reporting_run(app.record, claimed_job()) is None
