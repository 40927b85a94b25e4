"""Options of the worker command, and the reloader that it gets while developing."""

import re
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue.management.commands import pgqueue_worker
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.workers import MANAGE


def test_prometheus_client_is_not_needed_without_metrics():
    code = (
        "import sys, django; sys.modules['prometheus_client'] = None; django.setup();"
        "from django_pgqueue.management.commands import pgqueue_worker; import django_pgqueue.worker.consumer;"
        "assert 'django_pgqueue.contrib.prometheus' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_SECONDS)


@pytest.mark.django_db
def test_worker_says_what_metrics_need(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("django_pgqueue.contrib.prometheus")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(CommandError, match="pip install prometheus-client"):
        call_command("pgqueue_worker", metrics_port=9, drain=True, verbosity=0)


@pytest.mark.django_db
@pytest.mark.parametrize("port", [0, 65536])
def test_wrong_port_is_named(port):
    with pytest.raises(CommandError, match=rf"--metrics-port must be 1 to 65535, not {port}\."):
        call_command("pgqueue_worker", metrics_port=port)


@pytest.mark.django_db
def test_wrong_options_of_health_are_named():
    with pytest.raises(CommandError) as caught:
        call_command("pgqueue_worker", health_port=65536, health_max_age=0.0, health_file="/no/such/folder/file")
    assert "--health-port must be 1 to 65535, not 65536." in str(caught.value)
    assert "--health-max-age must be more than 0 seconds, not 0.0." in str(caught.value)
    assert "--health-file is in a folder that is not there: '/no/such/folder/file'." in str(caught.value)


def test_help_puts_options_into_groups():
    text = pgqueue_worker.Command().create_parser("manage.py", "pgqueue_worker").format_help()
    groups = re.findall(r"^(\w[\w ]*):$", text, flags=re.MULTILINE)
    assert groups == ["options", "start and stop", "recycling", "health", "metrics", "development"]
    assert "--max-jobs" in text.partition("\nrecycling:\n")[2].partition("\nhealth:\n")[0]


@pytest.mark.parametrize(("text", "seconds"), [("2", 2.0), ("2s", 2.0), ("1.5m", 90.0)])
def test_shutdown_timeout_is_a_duration(text, seconds):
    parser = pgqueue_worker.Command().create_parser("manage.py", "pgqueue_worker")
    options = vars(parser.parse_args(["--shutdown-timeout", text]))
    plan = pgqueue_worker.plan_from(options)
    assert plan.shutdown_timeout_seconds == seconds
    off = (plan.max_jobs, plan.max_memory_mb, plan.health_port, plan.metrics_port, plan.health_max_age)
    assert off == (None, None, None, None, None)


def test_queues_are_served_in_the_order_in_which_they_are_named():
    parser = pgqueue_worker.Command().create_parser("manage.py", "pgqueue_worker")
    options = vars(parser.parse_args(["--queue", "high,low", "--queue=-slow", "--queue", "low,rest*"]))
    assert pgqueue_worker.plan_from(options).queues == ("high", "low", "-slow", "rest*")


@pytest.fixture
def command(monkeypatch):
    """Run a command line; return the one that a reloader would repeat, or the error that comes where there is none."""
    repeated = []

    class Reloader:
        def __init__(self, command):
            repeated.append(command[command.index("pgqueue_worker") :])

        def run(self):
            return 7

    def begin(alias, *, is_alone):
        raise CommandError("no reloader")

    monkeypatch.setattr(pgqueue_worker, "Reloader", Reloader)
    monkeypatch.setattr(pgqueue_worker, "is_there", begin)
    monkeypatch.setattr(pgqueue_worker.Command, "requires_migrations_checks", False)

    def run(*options):
        line = ["manage.py", "pgqueue_worker", "--skip-checks", *options]
        monkeypatch.setattr("sys.argv", [str(MANAGE), *line[1:]])  # which Django repeats
        with pytest.raises(SystemExit) as end:
            pgqueue_worker.Command().run_from_argv(line)
        assert end.value.code == (7 if repeated else 1)
        return repeated

    return run


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("option", [None, "--reload", "--no-reload"])
def test_reloader_is_for_development_unless_the_option_says_otherwise(command, settings, debug, option):
    settings.DEBUG = debug
    options = ["--queue=mail", *([option] if option else [])]
    wanted = debug if option is None else option == "--reload"
    assert command(*options) == ([["pgqueue_worker", "--skip-checks", *options, "--no-reload"]] if wanted else [])


def test_options_that_cannot_work_are_found_before_anything_starts(command, capsys):
    assert command("--reload", "--concurrency=0") == []
    assert "--concurrency must be 1 to 1000, not 0." in capsys.readouterr().err


def test_code_that_calls_the_command_gets_no_reloader(command, settings):
    settings.DEBUG = True
    with pytest.raises(CommandError, match="no reloader"):
        call_command("pgqueue_worker")
    with pytest.raises(CommandError, match="--reload needs a command line"):
        call_command("pgqueue_worker", reload=True)
