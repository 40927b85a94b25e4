"""The roles of the page on privileges do their work, and cannot do what they are not for."""

import datetime as dt
import io
import re
import signal

import pytest
from django.core.management import call_command
from django.db import IntegrityError, ProgrammingError, connections

import tests.app.tasks as app
from django_pgqueue import PREVIOUS, Unique, batch, chain, jobs
from django_pgqueue.contrib.prometheus import QueueCollector
from django_pgqueue.contrib.prometheus.families import JOBS, OF_TABLES, UP
from django_pgqueue.db.queries import statement
from django_pgqueue.doctor import findings
from django_pgqueue.insights import overview, schedule_info, throughput
from django_pgqueue.jobs import ack, kill, move, purge, retry, run_now, set_priority
from django_pgqueue.jobs import waiter as waiting
from django_pgqueue.jobs.actions import KILL
from django_pgqueue.jobs.bulk_actions import begin, stop
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import DeadJob, Job, Schedule, SucceededJob
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.testing import run_jobs
from tests.support.catalogue import TABLES
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True)


OF_WORKFLOWS = {name for name in TABLES if re.search("workflow|stage|kept_calls", name)}


@pytest.fixture
def as_role(sql, login_as):
    """Let this test's own connection have the rights of a role until the end."""

    def become(role: str) -> None:
        login_as(role)
        sql(f"SET ROLE {role}")

    yield become
    sql("RESET ROLE")


def test_web_server_enqueues_and_can_neither_read_nor_change_what_it_has_enqueued(as_role, sql):
    as_role("shop_web")
    job_id = app.record.enqueue("secret").id
    app.record.using(delay=dt.timedelta(hours=1)).enqueue("later")
    app.record.enqueue_many([("x",), ("y",)])
    keyed = app.record.using(unique_key="k", limit_key="c", fair_key="f")
    assert keyed.enqueue("z").id == keyed.enqueue("z").id
    sql("SELECT pgqueue_enqueue('tests.app.tasks.noop')")
    for forbidden in (
        "SELECT args FROM pgqueue_jobs",
        "UPDATE pgqueue_jobs SET task = 'x'",
        "DELETE FROM pgqueue_jobs",
        "SELECT errors FROM pgqueue_dead_jobs",
        "SELECT result FROM pgqueue_succeeded_jobs",
        "SELECT host FROM pgqueue_workers",
        "DROP TABLE pgqueue_jobs",
        "CREATE TABLE mine (id int)",
    ):
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
            sql(forbidden)
    with pytest.raises(ProgrammingError, match="permission denied"):
        kill([job_id], by="eve")
    sql("RESET ROLE")
    assert Job.objects.count() == 6


WHAT_ENQUEUEING_SAYS = {
    *("task", "queue", "priority", "run_at", "status", "max_attempts", "lease_seconds", "timeout_seconds", "keep"),
    *(
        "keep_seconds",
        "parent_id",
        "schedule_id",
        "backend",
        "args",
        "kwargs",
        "tags",
        "metadata",
        "expires_at",
        "unique_key",
    ),
    *("unique_until", "unique_hold_seconds", "concurrency_key", "concurrency_limit", "concurrency_strict", "fair_key"),
}


def test_web_server_says_of_a_job_what_enqueueing_says_and_no_more(as_role, sql):
    """It chooses no id, which may be the next one or that of a dead job; takes no lease; and forges no history."""
    as_role("shop_web")
    for field in Job._meta.fields:
        if field.column not in {"task", *WHAT_ENQUEUEING_SAYS}:
            with pytest.raises(ProgrammingError, match="permission denied"):
                sql(f"INSERT INTO pgqueue_jobs (task, {field.column}) VALUES ('x', DEFAULT)")
    for status in ("running", "never heard of"):
        with pytest.raises(IntegrityError, match="violates check constraint"):
            sql("INSERT INTO pgqueue_jobs (task, status) VALUES ('x', %s)", status)
    assert set(sql("SELECT id FROM pgqueue_jobs")) == set()


def test_columns_that_the_web_server_may_insert_are_those_that_the_statements_name():
    named = set()
    for name in ("enqueue", "enqueue_many", "enqueue_calls", "enqueue_keyed", "enqueue_keyed_calls"):
        [columns] = re.findall(r"INSERT INTO pgqueue_jobs \(([^)]*)\)", statement(name))
        named |= set(re.findall(r"\w+", columns))
    assert named == WHAT_ENQUEUEING_SAYS


FOR_THE_OWNER_ONLY = (
    "TRUNCATE pgqueue_jobs",
    "ALTER TABLE pgqueue_jobs ADD mine int",
    "CREATE TABLE mine (id int)",
)
FORBIDDEN = {
    "shop_worker": (
        "DELETE FROM pgqueue_dead_jobs",
        "UPDATE pgqueue_dead_jobs SET reason = 'killed'",
        "UPDATE pgqueue_succeeded_jobs SET result = '1'",
        "DELETE FROM pgqueue_succeeded_jobs",
        "DELETE FROM pgqueue_queues",
        "DELETE FROM pgqueue_stats",
        "INSERT INTO pgqueue_bulk_actions (action, source, by) VALUES ('kill', 'live', 'ann')",
        "DELETE FROM django_migrations",
        "SELECT password FROM auth_user",
    ),
    "shop_admin": (
        "INSERT INTO pgqueue_succeeded_jobs SELECT * FROM pgqueue_succeeded_jobs",
        "INSERT INTO pgqueue_workers (pid) VALUES (1)",
        "DELETE FROM pgqueue_workers",
        "DELETE FROM pgqueue_queues",
        "DELETE FROM pgqueue_bulk_actions",
        "UPDATE pgqueue_stats SET failed = 0",
        "DELETE FROM django_migrations",
    ),
}


@pytest.mark.parametrize("role", FORBIDDEN)
def test_role_can_do_nothing_that_its_page_does_not_say(role, as_role, sql):
    as_role(role)
    for forbidden in (*FORBIDDEN[role], *FOR_THE_OWNER_ONLY):
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
            sql(forbidden)


def test_role_that_only_looks_changes_nothing(sql, project):
    page = (project / "docs" / "how-to" / "ask-in-sql.md").read_text()
    [grants] = re.findall(r"^```sql\n(GRANT [^`]* TO night_shift;\n)```$", page, flags=re.MULTILINE)
    sql("CREATE ROLE night_shift")
    try:
        sql(grants)
        sql("SET ROLE night_shift")
        for table in TABLES:
            for forbidden in (
                "DELETE FROM {}",
                "INSERT INTO {} DEFAULT VALUES",
                "TRUNCATE {}",
                "ALTER TABLE {} ADD x int",
            ):
                with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
                    sql(forbidden.format(table))
            if table not in {"pgqueue_queue_heads", "pgqueue_bulk_actions", "pgqueue_once_keys", *OF_WORKFLOWS}:
                sql(f"SELECT FROM {table}")
    finally:
        sql("RESET ROLE")
        sql("DROP OWNED BY night_shift")
        sql("DROP ROLE night_shift")


def test_web_server_with_the_rights_for_workflows_begins_them_and_adds(as_role, sql, project):
    page = (project / "docs" / "how-to" / "privileges.md").read_text()
    [more] = re.findall(r"^```sql\n(-- for workflows\n[^`]* TO shop_web;\n)```$", page, flags=re.MULTILINE)
    as_role("shop_web")
    with pytest.raises(ProgrammingError, match="permission denied"):
        chain(app.noop.bind(), app.noop.bind()).enqueue()
    sql("RESET ROLE")
    sql(more)
    sql("SET ROLE shop_web")
    chain([], app.noop.bind(), app.noop.using(limit_key="k").bind(), unique_key="w", child=False).enqueue()
    assert not chain(app.noop.bind(), unique_key="w").enqueue().created
    handle = batch([], then=app.noop.bind(), sealed=False).enqueue()
    handle.add(app.noop.bind(), stage="members")
    assert handle.seal("members")
    assert handle.status() == "open"
    sql("RESET ROLE")
    assert Job.objects.exclude(stage_id=None).count() == 4


def test_web_server_with_the_rights_for_it_keeps_calls_and_the_admin_runs_stages_again(as_role, sql, project):
    page = (project / "docs" / "how-to" / "privileges.md").read_text()
    as_role("shop_web")
    sql("RESET ROLE")
    for more in ("workflows", "keep_calls"):
        [grants] = re.findall(rf"^```sql\n(-- for {more}\n[^`]* TO shop_web;\n)```$", page, flags=re.MULTILINE)
        sql(grants)
    sql("SET ROLE shop_web")
    handle = batch([app.noop.bind()], then=app.noop.bind(), collect=True, sealed=False, keep_calls=True).enqueue()
    handle.add(app.noop.bind(), stage="members")
    handle.seal("members")
    sql("RESET ROLE")
    run_jobs()
    as_role("shop_admin")
    assert handle.rerun("members") == 3


def test_worker_that_owns_nothing_runs_workflows(start_worker, login_as):
    handle = chain(app.add.bind(1), app.add.bind(PREVIOUS, 2), [app.noop.bind()] * 1100).enqueue()
    start_worker(DATABASE_URL=login_as("shop_worker"))
    eventually(lambda: handle.status() == "succeeded")


def test_web_server_with_more_rights_changes_the_job_that_has_a_key(as_role, sql, project):
    page = (project / "docs" / "how-to" / "privileges.md").read_text()
    [more] = re.findall(r"^```sql\n(-- for on_conflict\b[^`]* TO shop_web;\n)```$", page, flags=re.MULTILINE)
    hour = dt.timedelta(hours=1)
    as_role("shop_web")
    first = app.record.using(unique_key="k", unique=Unique(hold=hour)).enqueue("old").id
    with pytest.raises(ProgrammingError, match="permission denied"):
        app.record.using(unique_key="k", on_conflict="replace").enqueue("new")
    sql("RESET ROLE")
    sql(more)
    sql("SET ROLE shop_web")
    for conflict, delay in (("replace", None), ("later", hour), ("earlier", None)):
        changing = app.record.using(unique_key="k", on_conflict=conflict, delay=delay)
        assert changing.enqueue("new").id == first
    sql("RESET ROLE")
    sql("UPDATE pgqueue_jobs SET status = 'reserved', run_at = now() - interval '1 s'")
    sql("SET ROLE shop_web")
    assert app.record.using(unique_key="k").enqueue("next").created
    with pytest.raises(ProgrammingError, match="permission denied"):
        sql("SELECT args FROM pgqueue_jobs")


def test_web_server_with_the_rights_to_wait_waits(queue, as_role, sql, project, monkeypatch):
    """By an alias of its own, so that the thread that waits logs in as that role."""
    page = (project / "docs" / "how-to" / "privileges.md").read_text()
    [more] = re.findall(r"^```sql\n(-- for state\(\) [^`]* TO shop_web;\n)```$", page, flags=re.MULTILINE)
    role = {"USER": "shop_web", "PASSWORD": "x"}
    monkeypatch.setitem(connections.settings, "web", connections.settings["default"] | role)
    job_id = app.noop.enqueue().id
    as_role("shop_web")
    sql(f"RESET ROLE; {more}")
    try:
        waiter = waiting.waiter_for("web", job_id)
        eventually(Job.objects.filter(has_waiters=True).exists)
        [claimed] = claim(queue, "default", limit=1, worker_id=1)
        ack.write(queue, [Outcome(claimed, Fate.SUCCEEDED, result="5")])
        sql("SET ROLE shop_web")
        assert (waiter.result(PATIENCE_SECONDS).result, jobs.get(job_id).result()) == (5, 5)
    finally:
        waiting.stop_all()


def test_web_server_with_the_rights_for_metrics_counts_jobs_and_reads_none(as_role, sql, project, caplog):
    page = (project / "docs" / "how-to" / "privileges.md").read_text()
    [more] = re.findall(r"^```sql\n(-- for metrics\n[^`]* TO shop_web;\n)```$", page, flags=re.MULTILINE)
    app.record.using(fair_key="ann").enqueue("secret")
    app.record.using(delay=dt.timedelta(hours=1)).enqueue("secret")
    as_role("shop_web")
    collector = QueueCollector()
    assert [family.name for family in collector.collect()] == [UP.name]
    assert "permission denied for table" in caplog.text
    sql(f"RESET ROLE; {more}")
    sql("SET ROLE shop_web")
    told = {family.name: family.samples for family in QueueCollector().collect()}
    assert told.keys() == {name.name for name in OF_TABLES}
    jobs = {sample.labels["status"]: sample.value for sample in told[JOBS.name]}
    assert (jobs["queued"], jobs["scheduled"]) == (1, 1)
    for forbidden in ("SELECT args FROM pgqueue_jobs", "SELECT args FROM pgqueue_dead_jobs"):
        with pytest.raises(ProgrammingError, match="permission denied"):
            sql(forbidden)


def test_admin_can_act_on_jobs(as_role, sql):
    as_role("shop_admin")
    later = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    assert run_now([later], by="ann") == [later]
    assert kill([later], by="ann").dead == [later]
    app.noop.using(fair_key="ann").enqueue()
    assert retry([later], by="ann").ids == [later]
    assert move([later], queue="new", by="ann") == set_priority([later], priority=1, by="ann") == [later]
    assert kill([later], by="ann").dead == purge([later], by="ann") == [later]
    assert purge([later], by="ann", succeeded=True) == []
    assert stop([begin(KILL, Filter(), by="ann")], by="ann")
    for words in (["list", "--status", "succeeded"], ["enqueue", "tests.app.tasks.noop"]):
        call_command("pgqueue_jobs", *words, stdout=io.StringIO())
    call_command("pgqueue_jobs", "show", str(Job.objects.earliest("id").pk), stdout=io.StringIO())
    assert sql("SELECT count(*) FROM pgqueue_workers") == [(0,)]


def test_admin_can_look_at_everything(as_role):
    app.noop.enqueue()
    as_role("shop_admin")
    lines = overview.lines("default")
    assert [line.name for line in lines] == list(overview.paces(lines, "default")) == ["default"]
    assert throughput.per_minute("default")
    assert schedule_info.runs(Schedule(id=1), "default") == []
    assert [finding.name for finding in findings("default") if finding.name != "default-partition"] == ["no-workers"]


def test_worker_that_owns_nothing_runs_jobs_and_cannot_rewrite_history(start_worker, login_as, sql):
    """With web server, worker and owner each in its place."""
    owner_url, worker_url = login_as("shop_owner"), login_as("shop_worker")
    settings = {"DJANGO_SETTINGS_MODULE": "tests.processes.keeping_settings", "VACUUM_DEAD_ROWS": "500"}
    worker = start_worker(**settings, DATABASE_URL=worker_url, OWNER_URL=owner_url).wait_until_ready()
    jobs = [app.parent.enqueue().id, app.arecord.enqueue("may not write its mark").id, app.discard.enqueue().id]
    failed = app.log_in.enqueue("ann", "hunter2").id
    Job.objects.create(task="unknown.task")
    eventually(lambda: SucceededJob.objects.count() == 2 and DeadJob.objects.count() == 2)
    eventually(lambda: Job.objects.filter(status="scheduled").count() == 2)
    assert DeadJob.objects.get(pk=failed).errors[0]["message"] == "ann cannot log in with [redacted]"
    assert "permission denied for table" in Job.objects.get(pk=jobs[1]).errors[0]["message"]
    assert "hunter2" not in worker.text()
    assert "W003" not in worker.text()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert sql("SELECT sum(succeeded) FROM pgqueue_stats") == [(2,)]
    sql("SET ROLE shop_worker")
    for forbidden in (
        "DELETE FROM pgqueue_dead_jobs",
        "UPDATE pgqueue_succeeded_jobs SET result = '1'",
        "TRUNCATE pgqueue_jobs",
        "ALTER TABLE pgqueue_jobs ADD COLUMN mine int",
        "CREATE TABLE mine (id int)",
    ):
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
            sql(forbidden)
    sql("RESET ROLE")
