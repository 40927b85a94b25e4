"""Code of docs/how-to/workflow-patterns.md, of workflows.md and the chord of the page about Celery do what they say."""

import datetime as dt
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest

from django_pgqueue import jobs, registry, workflows
from django_pgqueue.models import DeadJob, Job, Stage, Workflow
from django_pgqueue.testing import run_jobs
from tests.support.pages import DOCS, blocks
from tests.support.pieces import pieces

PIECES = pieces(DOCS / "how-to" / "workflow-patterns.md")
WORKFLOWS = pieces(DOCS / "how-to" / "workflows.md")
[CHORD] = [block for block in blocks(DOCS / "how-to" / "switch-from-celery.md", "python") if "zip_album" in block]

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(registry_of, code):
    """Run a piece in a module of its own, with what it leaves out."""

    def execute(piece: str, **given: object) -> ModuleType:
        module = ModuleType("tests.app.a_pattern")
        module.__dict__.update(given)
        exec(compile(piece, "a pattern", "exec"), module.__dict__)
        registry._late.clear()  # as tasks that workers load
        return module

    return execute


def names(report) -> list[str]:
    return [attempt.task.rpartition(".")[2] for attempt in report]


def test_each_pattern_is_run_below():
    assert [*PIECES] == [
        "Fan out, then join",
        "Steps that are undone",
        "Nightly import",
        "Filled by several requests",
    ]


class TestFanOut:
    def report_of(self, run, cents: dict[int, int]):
        order, report = mock.MagicMock(), mock.MagicMock()
        order.objects.order_by.return_value.values_list.return_value = [*cents]
        order.objects.filter.side_effect = lambda pk__in: SimpleNamespace(
            values_list=lambda *_, **__: [cents[pk] for pk in pk__in]
        )
        module = run(PIECES["Fan out, then join"], Order=order, Report=report)
        return module, report.objects.filter.return_value.update

    def test_parts_are_joined_once(self, run):
        module, update = self.report_of(run, dict.fromkeys(range(1200), 1))
        assert module.begin_report(17) == module.begin_report(17)
        assert names(run_jobs()) == ["split_orders", *["sum_part"] * 3, "join_parts"]
        assert update.mock_calls == [mock.call(cents=1200)]

    def test_without_parts_the_join_runs_at_once(self, run):
        module, update = self.report_of(run, {})
        module.begin_report(17)
        assert names(run_jobs()) == ["split_orders", "join_parts"]
        assert update.mock_calls == [mock.call(cents=0)]


class TestUndone:
    @pytest.fixture
    def module(self, run):
        return run(PIECES["Steps that are undone"])

    def breaking(self, module, monkeypatch, *broken: str):
        for name in broken:
            monkeypatch.setattr(getattr(module, name), "func", mock.Mock(side_effect=OSError))

    def test_nothing_is_undone_where_all_goes_well(self, module):
        workflow_id = module.fulfil(17)
        assert names(run_jobs()) == ["reserve", "charge", "send"]
        assert workflows.get(workflow_id).status() == "succeeded"

    @pytest.mark.parametrize(
        ("broken", "undone"),
        [
            ("reserve", ["give_back"]),
            ("charge", ["give_back", "refund"]),
            ("send", ["call_back", "give_back", "refund"]),
        ],
    )
    def test_dead_step_and_those_before_it_are_undone(self, module, monkeypatch, broken, undone):
        self.breaking(module, monkeypatch, broken)
        workflow_id = module.fulfil(17)
        report = run_jobs(until=dt.timedelta(days=1), errors="collect")
        steps = ["reserve", "charge", "send"]
        assert [*dict.fromkeys(names(report))][: steps.index(broken) + 1] == steps[: steps.index(broken) + 1]
        assert sorted(names(report.succeeded)) == sorted([*steps[: steps.index(broken)], *undone])
        assert workflows.get(workflow_id).status() == "failed"
        assert not Job.objects.exists()

    def test_reverse_that_is_dead_is_retried_by_hand(self, module, monkeypatch):
        with monkeypatch.context() as broken:
            self.breaking(module, broken, "charge", "refund")
            module.fulfil(17)
            run_jobs(until=dt.timedelta(days=30), errors="collect")
        dead = DeadJob.objects.get(task__endswith=".refund")
        jobs.retry([dead.pk])
        assert names(run_jobs().succeeded) == ["refund"]


class TestNightlyImport:
    @pytest.fixture
    def support(self):
        return mock.Mock()

    @pytest.fixture
    def module(self, run, support):
        feed = mock.MagicMock()
        feed.objects.all.return_value = [SimpleNamespace(pk=pk) for pk in (1, 2, 3)]
        feed.objects.get.side_effect = lambda pk: pk
        return run(PIECES["Nightly import"], Feed=feed, support=support, load=self.load)

    def load(self, feed: int) -> int:
        if feed == 2:
            raise OSError
        return 100 * feed

    def test_feed_that_fails_does_not_stop_the_others(self, module, support):
        module.import_all.enqueue()
        report = run_jobs(until=dt.timedelta(days=1), errors="collect", schedules=False)
        assert names(report.succeeded) == ["import_all", "import_feed", "import_feed", "build_index", "tell_support"]
        assert support.tell.mock_calls == [mock.call("400 rows, 1 feeds failed")]
        assert Workflow.objects.get().status == "succeeded"

    def test_while_one_is_open_no_second_one_begins(self, module):
        module.import_all.enqueue()
        module.import_all.enqueue()
        run_jobs(task=module.import_all)
        assert Workflow.objects.count() == 1
        assert Job.objects.filter(task=module.import_feed.name).count() == 3


class TestFilledByRequests:
    @pytest.fixture
    def module(self, run):
        return run(PIECES["Filled by several requests"])

    def test_album_is_published_after_it_is_closed(self, module):
        module.add_photo(17, 1)
        module.add_photo(17, 2)
        assert names(run_jobs()) == ["shrink", "shrink"]
        module.add_photo(17, 3)
        module.close(17)
        assert names(run_jobs()) == ["shrink", "publish"]
        assert Workflow.objects.get().status == "succeeded"

    def test_photo_that_comes_before_a_closed_album_is_published_is_refused(self, module):
        assert module.add_photo(17, 1)
        module.close(17)
        assert not module.add_photo(17, 2)
        assert names(run_jobs()) == ["shrink", "publish"]
        assert module.add_photo(17, 2)
        module.close(17)
        assert names(run_jobs()) == ["shrink", "publish"]

    def test_one_that_is_never_closed_fails_after_a_day(self, module):
        module.add_photo(17, 1)
        assert names(run_jobs(until=dt.timedelta(days=2))) == ["shrink"]
        assert Workflow.objects.get().status == "failed"


class TestChord:
    def chord(self, run, save_thumbnail):
        self.owner, self.zipped = mock.Mock(), {}
        keep = lambda album_id, parts: self.zipped.update({album_id: [*parts]})  # noqa: E731 - of two lines
        return run(CHORD, save_thumbnail=save_thumbnail, write_zip=keep, owner=self.owner)

    def test_results_are_packed_in_their_order(self, run):
        self.chord(run, lambda photo_id: f"{photo_id}.webp").zip_album(17, [3, 1, 2])
        run_jobs()
        assert self.zipped == {17: ["3.webp", "1.webp", "2.webp"]}
        assert not self.owner.tell.called

    def test_batch_waits_for_a_photo_and_goes_on_when_it_is_retried(self, run):
        torn = {2}

        def save_thumbnail(photo_id):
            if photo_id in torn:
                raise OSError
            return f"{photo_id}.webp"

        workflow_id = self.chord(run, save_thumbnail).zip_album(17, [1, 2])
        run_jobs(until=dt.timedelta(days=1), errors="collect")
        assert self.owner.tell.call_count == 1
        assert not self.zipped
        torn.clear()
        assert workflows.get(workflow_id).retry() == 1
        run_jobs()
        assert self.zipped == {17: ["1.webp", "2.webp"]}
        assert workflows.get(workflow_id).status() == "succeeded"


class TestWorkflowsPage:
    def test_stages_run_again_by_the_names_that_they_have_of_the_function(self, run):
        part = mock.Mock()
        module = run(WORKFLOWS["Any graph"] + WORKFLOWS["Again from a stage"], Part=part)
        workflow_id = module.publish_again(17)
        run_jobs()
        module.repeat(workflow_id)
        run_jobs()
        again = ["cover", "map", "mail"]
        assert [call.kwargs["name"] for call in part.objects.create.mock_calls] == ["text", *again, *again]
        assert [*Stage.objects.order_by("id").values_list("name", flat=True)] == ["work", "work 2", "work 3"]

    def test_report_reads_the_results_of_the_members_of_a_batch(self, run):
        page = mock.Mock(**{"objects.get.return_value.text": "two words"})
        module = run(WORKFLOWS["Many, then one"], Page=page, support=mock.Mock())
        module.count([1, 2, 3])
        assert run_jobs().succeeded[-1].result == 6
        assert {*Stage.objects.values_list("name", flat=True)} == {"members", "then", "died"}
