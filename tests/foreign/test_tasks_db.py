"""Tests of django-tasks-db, from its source, that speak of any backend with a database."""

from tests.foreign.environment import check, failed, source

REQUIREMENTS = "tasks_db"

DIFFERENT = {
    "tasks_db_suite.Backend.test_enqueue_task": "it wants a UUID; ids of jobs are numbers",
    "tasks_db_suite.Backend.test_enqueue_task_async": "likewise",
    "tasks_db_suite.Worker.test_complex_return_value": "a TypeError as there, with the text of Django's normalize_json",
}


def test_what_is_true_of_any_backend_is_true_of_ours(foreign, tmp_path):
    suite = source("django-tasks-db", "tests/", into=tmp_path) / "tests"
    text = (suite / "tests.py").read_text()
    (suite / "tests.py").write_text(
        text.replace("django_tasks_db.DatabaseBackend", "django_pgqueue.backend.PgQueueBackend")
    )
    [tasks] = (source("django", "tests/tasks/", into=tmp_path) / "tests" / "tasks").glob("tasks.py")
    # Its source lacks the tasks of its tests; those of Django's tests are the same, but for a letter.
    (suite / "tasks.py").write_text(tasks.read_text().replace("This Task failed", "This task failed"))
    (suite / "__init__.py").touch()
    foreign.path.insert(0, str(suite.parent))
    outcomes = foreign.suite("tasks_db_suite", name="tasks-db", settings="tasks_db_settings")
    check(failed(outcomes), DIFFERENT)
    assert len(outcomes) == 29
