"""Arguments are edited without a sight of those that are sensitive."""

import json
import re

import pytest

from django_pgqueue import registry
from django_pgqueue.cli.edit_arguments import Misplaced, masked, unmasked
from django_pgqueue.jobs.redaction import REDACTED


def test_placeholders_stand_for_what_is_sensitive_and_give_it_back():
    task = registry.get("tests.app.tasks.log_in")
    args, kwargs = ["ann", "open-sesame"], {"payload": {"list": [{"token": {"a": 1}}, {"token": "t2", "n": 2**70}]}}
    seen = masked(task, args, kwargs)
    assert "sesame" not in json.dumps([seen.args, seen.kwargs])
    assert seen.args == ["ann", "[redacted 1]"]
    assert [one["token"] for one in seen.kwargs["payload"]["list"]] == ["[redacted 2]", "[redacted 3]"]
    assert unmasked(task, seen.args, seen.kwargs, seen.kept) == (args, kwargs)
    fewer = {"payload": {"list": seen.kwargs["payload"]["list"][1:]}}
    assert unmasked(task, seen.args, fewer, seen.kept)[1]["payload"]["list"] == [{"token": "t2", "n": 2**70}]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (["[redacted 1]", "x"], {}),
        (["ann", "x"], {"payload": {"note": "[redacted 1]"}}),
        (["ann", "x"], {"payload": ["[redacted 1]"]}),
        (["ann", "the [redacted 1]"], {}),
    ],
)
def test_placeholder_cannot_be_moved_to_where_its_value_would_be_seen(args, kwargs):
    task = registry.get("tests.app.tasks.log_in")
    seen = masked(task, ["ann", "open-sesame"], {})
    with pytest.raises(Misplaced, match=re.escape("[redacted 1]")) as raised:
        unmasked(task, args, kwargs, seen.kept)
    assert "sesame" not in str(raised.value)


def test_placeholder_is_none_of_the_texts_in_the_arguments():
    task = registry.get("tests.app.tasks.log_in")
    seen = masked(task, ["[redacted 1]", "open-sesame"], {"payload": {"x": REDACTED}})
    assert seen.args == ["[redacted 1]", "[redacted 2]"]
    assert unmasked(task, seen.args, seen.kwargs, seen.kept)[0] == ["[redacted 1]", "open-sesame"]
