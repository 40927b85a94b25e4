"""Pages that say how to switch from a queue: their tasks do the same on both, and calls that wait are moved."""

import json
import re
from pathlib import Path

import pytest

from tests.foreign.environment import Foreign
from tests.support.pages import DOCS, blocks

REQUIREMENTS = "switch"

PAGES = {
    name: DOCS / "how-to" / f"switch-from-{name}.md" for name in ("dramatiq", "huey", "django-q2", "procrastinate")
}

PAYMENTS = """
import collections
import os
from pathlib import Path

FILE = Path(os.environ["PAYMENTS"])


class CardDeclined(Exception):
    pass


class Provider:
    def charge(self, order_id):
        with FILE.open("a") as file:
            file.write(f"{order_id} ")
        if order_id == UNREACHABLE:
            raise ConnectionError
        if order_id == DECLINED:
            raise CardDeclined

    def close_day(self):
        pass


UNREACHABLE, DECLINED, FINE = 1, 2, 3
ORDERS = UNREACHABLE, DECLINED, FINE
provider = Provider()


def charged():
    return collections.Counter(map(int, FILE.read_text().split())) if FILE.exists() else {}
"""

STUB = """
import dramatiq
from dramatiq.brokers.stub import StubBroker

broker = StubBroker()
dramatiq.set_broker(broker)
"""

START = """
import django
django.setup()
import json
from old_queues import *
from shop.payments import FINE, ORDERS, charged
"""

OLD = {
    "dramatiq": """
from shop import broker, actors
actors.checkout(FINE)
assert broker.broker.queues["payments.DQ"].qsize() == 1
broker.broker.flush_all()
for order_id in ORDERS:
    actors.charge.send(order_id)
dramatiq_worker(actors.charge, is_done=lambda: len(broker.broker.dead_letters) == 2 and charged().get(3))
""",
    "huey": """
from shop import huey_tasks
from huey.contrib.djhuey import HUEY
huey_tasks.checkout(FINE)
assert HUEY.pending()[0].eta
HUEY.flush()
huey_tasks.charge.task_class.default_retry_delay = 0
for order_id in ORDERS:
    huey_tasks.charge(order_id)
huey_consumer(is_done=lambda: charged() == {1: 4, 2: 1, 3: 1})
""",
    "django-q2": """
from shop import charging
for order_id in ORDERS:
    charging.checkout(order_id)
cluster(is_done=lambda: charged().get(1, 0) >= 3 and {2, 3} <= charged().keys())
""",
    "procrastinate": """
from shop import old_tasks
for order_id in ORDERS:
    old_tasks.charge.defer(order_id=order_id)
procrastinate_worker(old_tasks.charge)
""",
}

NEW = """
import datetime as dt
from django.db import transaction
from django_pgqueue.testing import run_jobs
from shop import tasks
for order_id in ORDERS:
    tasks.checkout(order_id)
with transaction.atomic():
    run_jobs(until=dt.timedelta(hours=1), errors="collect", schedules=False)
"""

MIGRATE = "from django.core.management import call_command; call_command('migrate', verbosity=0)"
AFRESH = {"django-q2": "\nfrom django_q.models import OrmQ; OrmQ.objects.all().delete()"}
"""Django-Q2 runs calls that fail without end: those of the tests before would run in every later one."""

MOVED = {
    "django-q2": ("from shop import charging\nfor order_id in ORDERS: charging.checkout(order_id)\n", {}),
    "procrastinate": (
        "from shop import old_tasks\nfor order_id in ORDERS: old_tasks.checkout(order_id)\n",
        {"queue": "payments", "status": "scheduled", "concurrency_key": "provider", "unique_key": "charge:3"},
    ),
}
BY_SQL = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute({sql!r})
    cursor.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'")
    assert cursor.fetchall() == [(0,)]
"""
ENDS = """
from django_pgqueue.models import Job
print(json.dumps(list(Job.objects.order_by("id").values("task", "args", "kwargs", {columns})), default=str))
Job.objects.all().delete()
"""

TELL = "\nprint(json.dumps(charged()))"


class Project:
    """A site with the modules of a page, whose blocks begin with the name of each."""

    def __init__(self, foreign: Foreign, name: str, folder: Path | None = None) -> None:
        self._foreign = foreign
        self.blocks = blocks(PAGES[name], "python")
        self.shop = (folder or foreign.folder / name) / "shop"
        self.shop.mkdir(parents=True)
        files = {"__init__.py": "", "payments.py": PAYMENTS, "broker.py": STUB}
        for block in self.blocks:
            if place := re.match(r"# (?:before|after): shop/(\w+\.py)\n", block):
                files[place[1]] = block
        assert len(files) == 5
        self.after = files["tasks.py"]
        for file, text in files.items():
            (self.shop / file).write_text(text)
        self.run(MIGRATE + AFRESH.get(name, ""))

    def run(self, code: str, *, payments: str = "payments") -> str:
        path = [str(self.shop.parent), *self._foreign.path]
        return self._foreign.run(
            *("-W", "ignore", "-c", START + code),
            cwd=self.shop.parent,
            PYTHONPATH=":".join(path),
            DJANGO_SETTINGS_MODULE="switch_settings",
            PAYMENTS=str(self.shop.parent / payments),
        )

    def charged(self, code: str, name: str) -> dict[int, int]:
        """Run code; return how often each order was charged."""
        told = self.run(code + TELL, payments=name).splitlines()[-1]
        return {int(order): times for order, times in json.loads(told).items()}


@pytest.fixture(scope="module", params=PAGES)
def project(request, foreign) -> Project:
    project = Project(foreign, request.param)
    project.name = request.param
    return project


def test_task_fails_and_is_retried_as_before(project):
    before, after = project.charged(OLD[project.name], "before"), project.charged(NEW, "after")
    if project.name != "django-q2":
        assert before == after == {1: 4, 2: 1, 3: 1}
        return
    assert after == {1: 10, 2: 1, 3: 1}
    assert before[1] >= 3, "it runs without end"


@pytest.mark.parametrize("name", MOVED)
def test_calls_that_wait_are_moved_by_the_code_of_the_page(foreign, name, tmp_path):
    project = Project(foreign, name, tmp_path)
    enqueue, columns = MOVED[name]
    moves = [block for block in project.blocks if block.startswith("# manage.py shell")]
    moves += [BY_SQL.format(sql=sql) for sql in blocks(PAGES[name], "postgresql")]
    assert len(moves) == 1
    ends = ENDS.format(columns=", ".join(map(repr, columns)))
    jobs = json.loads(project.run(enqueue + moves[0] + ends).splitlines()[-1])
    assert [job["args"] or [job["kwargs"]["order_id"]] for job in jobs] == [[1], [2], [3]]
    assert {job["task"] for job in jobs} == {re.search(r'name="([\w.]+)"', project.after)[1]}
    assert {column: jobs[-1][column] for column in columns} == columns


GRADUAL = """
{imports}
from django_pgqueue import task
from django_pgqueue.contrib.cutover import Cutover, new_side, old_side
from shop.payments import provider


{declare}
@old_side
def old_charge(order_id):
    provider.charge(order_id)


@task
@new_side
def charge(order_id):
    provider.charge(-order_id)


charging = Cutover(new=charge, old={old})
"""
"""Orders that the new side charges are negative."""

SIDES = {
    "dramatiq": ("import dramatiq, shop.broker", "@dramatiq.actor", "old_charge.send", "dramatiq_worker({})"),
    "huey": ("from huey.contrib.djhuey import db_task", "@db_task()", "old_charge", "huey_consumer({})"),
    "django-q2": (
        "from django_q.tasks import async_task",
        "",
        "lambda *args, **kwargs: async_task('shop.gradual.old_charge', *args, **kwargs)",
        "cluster({})",
    ),
    "procrastinate": (
        "from procrastinate.contrib.django import app",
        "@app.task",
        "old_charge.defer",
        "procrastinate_worker()",
    ),
}

STAGES = """
import datetime as dt
from django.conf import settings
from django.db import transaction
from django_pgqueue.testing import run_jobs
from shop import gradual
for order_id, stage in enumerate(["old", "old_leads", "new_leads", "new"], 5):
    settings.PGQUEUE_CUTOVER = stage
    gradual.charging.enqueue(order_id=order_id)
{work}
with transaction.atomic():
    run_jobs(schedules=False)
"""


@pytest.mark.parametrize("name", PAGES)
def test_each_call_runs_once_on_its_side_while_both_queues_are_in_use(foreign, name, tmp_path):
    imports, declare, old, work = SIDES[name]
    project = Project(foreign, name, tmp_path)
    (project.shop / "gradual.py").write_text(GRADUAL.format(imports=imports, declare=declare, old=old))
    work = work.format("is_done=lambda: {5, 6} <= charged().keys()")
    assert project.charged(STAGES.format(work=work), "gradual") == {5: 1, 6: 1, -7: 1, -8: 1}
