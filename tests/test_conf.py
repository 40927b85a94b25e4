"""Settings have defaults and types, and are read when they are asked for."""

import json
import os
import pydoc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.serializers.json import DjangoJSONEncoder

from django_pgqueue.checks import check_settings
from django_pgqueue.conf import DEFAULTS, NO_MIDDLEWARE, PgQueueSettings, Setting, Settings, conf
from tests.support.pages import ROOT

OF_ALIASES = ["MAINTENANCE_DATABASE", "LISTEN_DATABASE", "REPLICA_DATABASE"]  # which default to DATABASE


def test_each_setting_is_an_attribute():
    found = [name for name, value in vars(Settings).items() if isinstance(value, Setting)]
    assert found == [key.lower() for key in DEFAULTS]


def test_each_setting_is_known_to_editors_and_type_checkers():
    assert [*PgQueueSettings.__annotations__] == [*DEFAULTS]


def test_type_of_the_settings_can_be_imported_by_their_module(tmp_path):
    """Where Django's settings are not there yet."""
    code = (
        "from django_pgqueue.conf import PgQueueSettings\n"
        "from django.conf import settings\n"
        "assert not settings.configured\n"
        'PGQUEUE: PgQueueSettings = {"RETENTION_DAYS": 3}\n'
    )
    (tmp_path / "chosen.py").write_text(code)
    ask = "import django; from django.conf import settings; settings.PGQUEUE; print(settings.PGQUEUE['RETENTION_DAYS'])"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "chosen", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", ask], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "3\n"


@pytest.mark.parametrize("key", sorted(set(DEFAULTS) - {*OF_ALIASES, "MIDDLEWARE"}))
def test_setting_that_is_not_given_has_its_default(settings, key):
    settings.PGQUEUE = {}
    assert getattr(conf, key.lower()) == DEFAULTS[key]
    assert type(getattr(conf, key.lower())) is type(DEFAULTS[key])


def test_project_without_settings_has_all_defaults(settings):
    settings.PGQUEUE = {"LEASE_SECONDS": 60}  # so that they are read again
    del settings.PGQUEUE
    assert (conf.database, conf.lease_seconds, conf.json_encoder) == ("default", 30, None)
    assert conf.middleware == NO_MIDDLEWARE


def test_change_of_a_setting_counts_at_once(settings):
    settings.PGQUEUE = {"LEASE_SECONDS": 60}
    assert conf.lease_seconds == 60
    settings.PGQUEUE = {"LEASE_SECONDS": 90}
    assert conf.lease_seconds == 90


def test_value_is_made_once_of_what_the_settings_say(settings, monkeypatch):
    """Each run asks for what is around it."""
    settings.PGQUEUE = {"MIDDLEWARE": ["json.dumps"]}
    functions = conf.middleware.run
    monkeypatch.setattr("django_pgqueue.conf.import_string", None)
    assert conf.middleware.run is functions
    settings.PGQUEUE = {"MIDDLEWARE": []}
    assert conf.middleware.run == ()


def test_help_shows_default_and_range():
    assert Settings.lease_seconds.__doc__ == "PGQUEUE['LEASE_SECONDS']. Default: 30. From 3 to 86400."
    assert "PGQUEUE['TRACING']. Default: True." in pydoc.render_doc(Settings)


@pytest.mark.parametrize("name", [key.lower() for key in OF_ALIASES])
def test_other_ways_to_the_database_lead_to_that_of_the_queue_unless_they_are_named(settings, name):
    settings.PGQUEUE = {"DATABASE": "queue"}
    assert getattr(conf, name) == "queue"
    settings.PGQUEUE = {"DATABASE": "queue", name.upper(): "direct"}
    assert (getattr(conf, name), conf.database) == ("direct", "queue")


def test_middleware_may_be_functions_around_runs_or_their_paths(settings):
    settings.PGQUEUE = {"MIDDLEWARE": ["json.dumps", json.loads]}
    assert conf.middleware.run == (json.dumps, json.loads)


def test_one_object_is_made_of_a_middleware_for_all_threads_and_none_to_check_it(settings):
    made, both = [], threading.Barrier(2)

    class Counted:
        run = None  # as a class below another one switches a method off

        def __init__(self):
            made.append(self)

        def enqueue(self, jobs):
            raise NotImplementedError

    settings.PGQUEUE = {"MIDDLEWARE": [Counted]}
    assert check_settings() == []
    assert made == []

    def ask():
        both.wait()
        return conf.middleware

    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(ask) for _ in range(2))
    assert first.result() == second.result() == ((made[0].enqueue,), ())
    settings.PGQUEUE = {"MIDDLEWARE": [Counted], "POLL_SECONDS": 5}
    assert conf.middleware.enqueue == (made[0].enqueue,)
    assert len(made) == 1


def test_encoder_is_a_class_or_its_path(settings):
    for given in (DjangoJSONEncoder, "django.core.serializers.json.DjangoJSONEncoder"):
        settings.PGQUEUE = {"JSON_ENCODER": given}
        assert conf.json_encoder is DjangoJSONEncoder
    settings.PGQUEUE = {"JSON_ENCODER": "json.JSONEncoder"}
    assert conf.json_encoder is json.JSONEncoder


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ({"POLL_SECONDS": 2}, "poll_seconds", 2.0),
        ({"READ_TIMEOUT_SECONDS": 3}, "read_timeout_seconds", 3.0),
        ({"NOTIFY": 0}, "notify", False),
        ({"DEAD_RETENTION_DAYS": 5}, "dead_retention_days", 5),
        ({"PREPARED_STATEMENTS": False}, "prepared_statements", False),
    ],
)
def test_given_value_has_the_type_of_its_setting(settings, given, name, expected):
    settings.PGQUEUE = given
    assert getattr(conf, name) == expected
    assert type(getattr(conf, name)) is type(expected)
