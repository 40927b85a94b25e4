"""Asking for results: by id, again, and for tasks that the settings or the code no longer know."""

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from tests.conformance import needs, tasks
from tests.conformance.compat import TaskResultDoesNotExist, TaskResultMismatch, TaskResultStatus, task_backends

pytestmark = pytest.mark.django_db


def get_result(source, result_id):
    return source.get_result(result_id)


def aget_result(source, result_id):
    return async_to_sync(source.aget_result)(result_id)


both_ways = pytest.mark.parametrize("ask", [get_result, aget_result])


@needs.no_results
@both_ways
def test_backend_without_results_says_so(ask):
    """Or has some, for this process alone, as the Dummy backend."""
    result = tasks.nothing.enqueue()
    try:
        found = ask(task_backends["default"], result.id)
    except NotImplementedError as error:
        assert str(error) == "This backend does not support retrieving or refreshing results."  # noqa: PT017
    else:
        assert found == result


@needs.results
class TestResults:
    @both_ways
    def test_result_is_what_enqueue_returned(self, ask):
        result = tasks.add.using(queue_name="mail").enqueue((1, b"x"), b={"key": None})
        assert ask(task_backends["default"], result.id) == result

    @both_ways
    def test_task_finds_its_result(self, ask):
        result = tasks.add.enqueue(1)
        assert ask(tasks.add, result.id) == result
        assert ask(tasks.add.using(queue_name="mail"), result.id) == result

    @both_ways
    def test_task_refuses_the_result_of_another(self, ask):
        result = tasks.add.enqueue(1)
        with pytest.raises(TaskResultMismatch, match=r"tests\.conformance\.tasks\.add"):
            ask(tasks.nothing, result.id)

    @both_ways
    def test_result_keeps_what_the_task_was_changed_to(self, ask):
        result = tasks.add.using(queue_name="whatever", backend="open").enqueue(1)
        found = ask(task_backends["open"], result.id)
        assert (found.task.queue_name, found.task.backend, found.backend) == ("whatever", "open", "open")
        assert found == result

    @needs.priority
    def test_result_keeps_the_priority(self):
        result = tasks.add.using(priority=-7).enqueue(1)
        assert tasks.add.get_result(result.id).task.priority == -7

    def test_aliases_keep_their_results_apart(self):
        results = [tasks.nothing.enqueue(), tasks.second.enqueue(), tasks.nothing.using(backend="open").enqueue()]
        found = [task_backends[result.backend].get_result(result.id) for result in results]
        assert found == results
        assert [result.backend for result in found] == ["default", "second", "open"]

    @both_ways
    def test_unknown_id_does_not_exist(self, ask):
        """One that the backend itself has given, and a rollback has taken back."""
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            unknown = tasks.nothing.enqueue().id
            raise ZeroDivisionError
        for source in (task_backends["default"], tasks.nothing):
            with pytest.raises(TaskResultDoesNotExist):
                ask(source, unknown)

    @both_ways
    @pytest.mark.parametrize(
        "malformed",
        [
            "",
            " ",
            "x",
            "-1",
            "0",
            "1.5",
            "1e3",
            "9" * 30,
            "9" * 5000,
            "٣",
            "½",
            "\0",
            "💥",
            "\ud800",
            "None",
            "a/b",
            "1:2",
            "z" * 32,
        ],
        ids=ascii,
    )
    def test_malformed_id_does_not_exist(self, ask, malformed):
        with pytest.raises(TaskResultDoesNotExist):
            ask(task_backends["default"], malformed)
        assert tasks.nothing.enqueue().id, "the transaction goes on"

    def test_almost_the_id_is_not_the_id(self):
        result = tasks.nothing.enqueue()
        for almost in (
            f"0{result.id}",
            f"+{result.id}",
            f" {result.id}",
            f"{result.id}\n",
            f"{result.id}.0",
            f"{result.id}_0",
        ):
            with pytest.raises(TaskResultDoesNotExist):
                task_backends["default"].get_result(almost)

    @needs.database
    def test_asking_is_one_query(self, django_assert_num_queries):
        result = tasks.add.enqueue(1)
        for ask in (
            lambda: tasks.add.get_result(result.id),
            lambda: async_to_sync(tasks.add.aget_result)(result.id),
            result.refresh,
            async_to_sync(result.arefresh),
        ):
            with django_assert_num_queries(1):
                ask()

    @both_ways
    def test_refreshing_changes_nothing_while_nothing_has_happened(self, ask):
        result = tasks.add.enqueue(1)
        async_to_sync(result.arefresh)() if ask is aget_result else result.refresh()
        assert result == tasks.add.get_result(result.id)
        assert result.status is TaskResultStatus.READY

    @both_ways
    def test_refreshing_what_is_gone_says_so(self, ask):
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            result = tasks.nothing.enqueue()
            raise ZeroDivisionError
        with pytest.raises(TaskResultDoesNotExist):
            async_to_sync(result.arefresh)() if ask is aget_result else result.refresh()

    @both_ways
    def test_result_outlives_its_queue(self, ask, alias):
        """A queue that is taken out of the settings must not hide what was enqueued to it."""
        result = tasks.elsewhere.enqueue()
        alias("default", QUEUES=["default"])
        found = ask(task_backends["default"], result.id)
        assert (found.id, found.status, found.task.queue_name) == (result.id, TaskResultStatus.READY, "mail")
        result.refresh()
        assert found.task.func is tasks.elsewhere.func

    @both_ways
    def test_result_outlives_its_function(self, ask, monkeypatch):
        result = tasks.vanish.enqueue()
        monkeypatch.delattr(tasks, "vanish")
        found = ask(task_backends["default"], result.id)
        assert (found.id, found.status) == (result.id, TaskResultStatus.READY)
        assert found.task.module_path == "tests.conformance.tasks.vanish"
        result.refresh()

    @both_ways
    def test_result_outlives_that_its_function_was_a_task(self, ask, monkeypatch):
        result = tasks.vanish.enqueue()
        monkeypatch.setattr(tasks, "vanish", tasks.plain)
        found = ask(task_backends["default"], result.id)
        assert (found.id, found.status) == (result.id, TaskResultStatus.READY)

    @needs.async_tasks
    @both_ways
    def test_result_outlives_that_its_function_was_plain(self, ask, monkeypatch):
        from tests.conformance import async_tasks

        result = tasks.vanish.enqueue()
        monkeypatch.setattr(tasks, "vanish", async_tasks.leave)
        found = ask(task_backends["default"], result.id)
        assert (found.id, found.status) == (result.id, TaskResultStatus.READY)
