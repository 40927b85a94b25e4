"""Times, arguments and progress, in the words and the markup of the admin."""

import datetime as dt

import pytest
from django.utils import timezone

from django_pgqueue.admin import formatting
from django_pgqueue.models import Job
from django_pgqueue.states import NEVER
from tests.support.admin_jobs import JOBS, queued

pytestmark = pytest.mark.django_db


def test_long_arguments_are_cut():
    shown = formatting.pretty_json(["x" * 60_000])
    assert len(shown) < 51_000
    assert "more characters" in shown


def test_instants_that_have_not_come_are_not_yet(settings):
    assert formatting.moment(NEVER) == formatting.exact_moment(NEVER) == "not yet"
    assert formatting.moment(None) == "-"
    settings.USE_TZ = False
    assert formatting.moment(timezone.make_naive(NEVER, timezone.get_default_timezone())) == "not yet"


def test_times_are_in_the_format_of_the_admin_and_to_the_second(admin_client, settings):
    job_id = queued()
    at = timezone.make_aware(dt.datetime(2031, 1, 2, 3, 4, 5))
    Job.objects.filter(pk=job_id).update(enqueued_at=at)
    page = admin_client.get(f"{JOBS}{job_id}/change/").content.decode()
    iso = timezone.localtime(at).isoformat(sep=" ", timespec="seconds")
    assert f'<time datetime="{iso}" title="{iso}">Jan. 2, 2031, 03:04:05</time>' in page


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (None, "-"),
        (
            {"done": 3, "total": 12, "message": "<b>", "attempt": 2},
            '<progress max="12" value="3"></progress> 3 of 12 &lt;b&gt; <span class="pgqueue-quiet">attempt 2</span>',
        ),
        (
            {"done": 0.5, "total": None, "message": "", "attempt": 1},
            '0.5  <span class="pgqueue-quiet">attempt 1</span>',
        ),
        ({"done": 0, "total": 0, "attempt": 1}, '0  <span class="pgqueue-quiet">attempt 1</span>'),
        ({"steps": "of a third kind", "password": "x"}, "[redacted]"),
        ("text", "text"),
    ],
)
def test_progress_is_a_bar_and_words_whatever_is_in_it(progress, shown):
    assert shown in formatting.progress(progress)
