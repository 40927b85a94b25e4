"""Workflows that wait for staff, or are late, are found."""

import datetime as dt

import pytest
from django.utils import timezone

from django_pgqueue import batch, group
from django_pgqueue.jobs import kill
from django_pgqueue.models import Job, Stage, Workflow
from tests.app.tasks import noop
from tests.support.doctor import found, only

pytestmark = pytest.mark.django_db


def test_workflow_that_waits_for_dead_members_alone_is_found():
    handle = group([noop.bind(), noop.bind()], name="import").enqueue()
    first, second = Job.objects.values_list("id", flat=True)
    kill([first])
    assert not found("workflows-stuck")
    kill([second])
    finding = only("workflows-stuck")
    assert f"import #{handle.id}" in finding.what
    assert finding.facts == {"workflows": [handle.id]}
    Workflow.objects.update(on_death="stop")
    assert not found("workflows-stuck")


def test_stage_that_was_not_sealed_is_found_after_an_hour():
    handle = batch([noop.bind()], sealed=False, name="letters").enqueue()
    Stage.objects.update(opened_at=timezone.now() - dt.timedelta(hours=2))
    assert not found("stages-unsealed")
    Job.objects.all().delete()
    assert f"letters #{handle.id}" in only("stages-unsealed").what
    Stage.objects.update(opened_at=timezone.now() - dt.timedelta(minutes=50))
    assert not found("stages-unsealed")


def test_workflow_that_is_open_after_its_deadline_is_found():
    handle = group([noop.bind()], deadline=60, name="report").enqueue()
    Workflow.objects.update(deadline_at=timezone.now() - dt.timedelta(seconds=5))
    assert not found("workflows-overdue")
    Workflow.objects.update(deadline_at=timezone.now() - dt.timedelta(seconds=90))
    assert f"report #{handle.id}" in only("workflows-overdue").what
    handle.kill()
    assert not found("workflows-overdue")
