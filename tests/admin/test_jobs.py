"""The list of live jobs, and their pages: what is shown, and that it is text."""

import re

import pytest

import tests.app.tasks as app
from django_pgqueue.models import Job, Worker
from tests.support.admin_jobs import DEAD, JOBS, dead, queued, running, scheduled
from tests.support.staff import confirm, tick

pytestmark = pytest.mark.django_db


def test_list_shows_jobs_in_words(viewer):
    queued(queue="mail", priority=7)
    scheduled()
    running()
    page = viewer.get(JOBS).content.decode()
    for words in ("tests.app.tasks.record", "mail", "0/10", "scheduled", "running", "web-7 4711", "from now"):
        assert words in page
    assert "3 jobs" in page


def test_markup_in_a_job_is_shown_as_text(viewer, staff):
    evil = "<script>alert(1)</script>"
    job_id = app.record.using(queue=evil, metadata={evil: evil}).enqueue(evil).id
    everywhere = {"queue": evil, "task": evil, "unique_key": evil, "unique_until": "end", "killed_by": evil}
    dead_id = dead(
        errors=[{"error": evil, "message": evil, "traceback": evil, "worker": evil, "at": evil}], **everywhere
    )
    Job.objects.filter(pk=job_id).update(
        unique_key=evil,
        unique_until="end",
        concurrency_key=evil,
        concurrency_limit=1,
        concurrency_slot=1,
        fair_key=evil,
    )
    named_id = Job.objects.create(task=evil, backend=evil).pk
    running(task=evil)
    Worker.objects.update(host=evil)
    pages = [JOBS, f"{JOBS}{job_id}/change/", f"{JOBS}{named_id}/change/", DEAD, f"{DEAD}{dead_id}/change/"]
    pages += [f"{JOBS}?q={evil}", f"{JOBS}?queue={evil}", f"{DEAD}?task={evil}"]
    for page in [viewer.get(url).content.decode() for url in pages]:
        assert evil not in page
        assert "&lt;script&gt;alert(1)" in page
    assert evil not in tick(staff, JOBS, "kill", job_id, named_id).content.decode()
    assert evil not in confirm(staff, f"{JOBS}kill/", named_id).content.decode()
    assert evil not in staff.get(f"{DEAD}{named_id}/history/").content.decode()


def test_pages_carry_no_inline_style_or_script(staff):
    job_id = queued()
    for response in (staff.get(f"{JOBS}{job_id}/change/"), tick(staff, JOBS, "kill", job_id)):
        own = response.content.decode().partition('id="content"')[2].partition('id="footer"')[0]
        assert "style=" not in own
        assert not re.search(r"<script(?![^>]*src=)", own)
        assert "onclick" not in own
