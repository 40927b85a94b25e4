"""Settings have defaults and types, and are read when they are asked for."""

import json
import pydoc

import pytest
from django.core.serializers.json import DjangoJSONEncoder

from django_pgqueue.conf import DEFAULTS, Settings, conf


def test_each_setting_is_an_attribute():
    assert [name for name in vars(Settings) if not name.startswith("_")] == [key.lower() for key in DEFAULTS]


@pytest.mark.parametrize("key", sorted(set(DEFAULTS) - {"MAINTENANCE_DATABASE", "LISTEN_DATABASE"}))
def test_setting_that_is_not_given_has_its_default(settings, key):
    settings.PGQUEUE = {}
    assert getattr(conf, key.lower()) == DEFAULTS[key]
    assert type(getattr(conf, key.lower())) is type(DEFAULTS[key])


def test_project_without_settings_has_all_defaults(settings):
    del settings.PGQUEUE
    assert (conf.database, conf.lease_seconds, conf.encoder) == ("default", 30, None)


def test_change_of_a_setting_counts_at_once(settings):
    settings.PGQUEUE = {"LEASE_SECONDS": 60}
    assert conf.lease_seconds == 60
    settings.PGQUEUE = {"LEASE_SECONDS": 90}
    assert conf.lease_seconds == 90


def test_help_shows_default_and_range():
    assert Settings.lease_seconds.__doc__ == "PGQUEUE['LEASE_SECONDS']. Default: 30. From 3 to 86400."
    assert "PGQUEUE['TRACING']. Default: True." in pydoc.render_doc(Settings)


@pytest.mark.parametrize("name", ["maintenance_database", "listen_database"])
def test_other_ways_to_the_database_lead_to_that_of_the_queue_unless_they_are_named(settings, name):
    settings.PGQUEUE = {"DATABASE": "queue"}
    assert getattr(conf, name) == "queue"
    settings.PGQUEUE = {"DATABASE": "queue", name.upper(): "direct"}
    assert (getattr(conf, name), conf.database) == ("direct", "queue")


def test_what_is_around_runs_are_functions_or_their_paths(settings):
    settings.PGQUEUE = {"AROUND": ["json.dumps", json.loads]}
    assert conf.around == (json.dumps, json.loads)


def test_encoder_is_a_class_or_its_path(settings):
    for given in (DjangoJSONEncoder, "django.core.serializers.json.DjangoJSONEncoder"):
        settings.PGQUEUE = {"ENCODER": given}
        assert conf.encoder is DjangoJSONEncoder
    settings.PGQUEUE = {"ENCODER": "json.JSONEncoder"}
    assert conf.encoder is json.JSONEncoder


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ({"POLL_SECONDS": 2}, "poll_seconds", 2.0),
        ({"ADMIN_TIMEOUT_SECONDS": 3}, "admin_timeout_seconds", 3.0),
        ({"NOTIFY": 0}, "notify", False),
        ({"DEAD_RETENTION_DAYS": 5}, "dead_retention_days", 5),
        ({"PREPARED_STATEMENTS": False}, "prepared_statements", False),
    ],
)
def test_given_value_has_the_type_of_its_setting(settings, given, name, expected):
    settings.PGQUEUE = given
    assert getattr(conf, name) == expected
    assert type(getattr(conf, name)) is type(expected)
