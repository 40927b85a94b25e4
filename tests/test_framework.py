"""The Tasks framework is asked for where it is used, and nowhere else."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from django_pgqueue import framework
from django_pgqueue.framework import NAMES, has_receiver, has_receivers, signals


def test_framework_that_is_not_there_is_said_with_its_remedy(project: Path):
    code = (
        "import importlib.util as util; find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name in ('django.tasks', 'django_tasks') else find(name, *rest)\n"
        "import django_pgqueue.backend"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
    assert "ConfigurationError: Django has its Tasks framework from 6.0 on. Before, install " in done.stderr
    assert "pip install django-tasks" in done.stderr


def test_public_names_do_not_need_the_framework(project: Path):
    code = "import sys, django_pgqueue; assert not {'django.tasks', 'django_tasks'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("signal", NAMES, ids=list(NAMES.values()))
def test_log_of_the_framework_is_no_receiver_of_a_project(monkeypatch, caplog, signal):
    monkeypatch.setattr(signal, "receivers", [])
    signal.connect(getattr(signals, f"log_{NAMES[signal]}"))
    caplog.set_level("WARNING", logger=framework.logger.name)
    assert not has_receivers(signal)
    assert not has_receiver(signal, logging.INFO)
    assert has_receiver(signal, logging.ERROR), "for its line in the log"

    def receiver(**_): ...

    signal.connect(receiver)
    assert has_receivers(signal)
    assert has_receiver(signal, logging.INFO)
