"""manage.py pgqueue_tasks: which tasks the code knows."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

import tests.app.tasks as app
from django_pgqueue import registry


def run(*words) -> str:
    out = StringIO()
    call_command("pgqueue_tasks", *words, stdout=out)
    return out.getvalue()


def test_all_tasks_are_listed_each_once():
    assert [told["name"] for told in json.loads(run("--json"))] == list(registry.known())
    assert run().splitlines()[0] == registry.known()[0]


def test_tasks_are_chosen_by_name_and_a_former_one_will_do():
    renamed = registry.get("tests.app.tasks.old_name")
    found = json.loads(run("tests.app.tasks.old_name", renamed.name, "--json"))
    assert [told["name"] for told in found] == [renamed.name]
    with pytest.raises(CommandError, match=r"No task is called 'tests\.app\.tasks\.recor'\..* Did you mean"):
        run("tests.app.tasks.recor")


def test_tasks_are_chosen_by_queue(monkeypatch):
    monkeypatch.setitem(registry._registry, app.record.name, app.record.using(queue="only here"))
    assert [told["name"] for told in json.loads(run("--queue", "only here", "--json"))] == [app.record.name]
    assert run("--queue", "nowhere").startswith("There is no such task. ")
