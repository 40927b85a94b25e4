"""Findings: as pgqueue_doctor tells them, and as the looks return them."""

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

from django.core.management import CommandError, call_command

from django_pgqueue import doctor
from django_pgqueue.doctor import findings
from tests.support.waiting import eventually
from tests.support.worker_rows import forget_counters

Plant = str | Callable[[Any], None]
Cure = str | Callable[[Any, Any], None]
Fault = tuple[str, Plant, Cure, int]
"""The name of its finding, how it comes and goes, and the exit code."""


def say(*words: str) -> tuple[str, str, int]:
    """Return what the command prints, what it complains of, and its exit code."""
    out = StringIO()
    try:
        call_command("pgqueue_doctor", *words, stdout=out)
    except CommandError as error:
        return out.getvalue(), str(error), error.returncode
    return out.getvalue(), "", 0


def diagnosis(*words: str) -> tuple[dict[str, Any], int]:
    """Return the findings by name, and the exit code."""
    text, _complaint, code = say("--json", *words)
    return {finding["name"]: finding for finding in json.loads(text)["findings"]}, code


def is_healthy(sql) -> bool:
    """Nothing is found, once the last session of an earlier test has told what it did."""
    forget_counters(sql)
    return say() == ("healthy\n", "", 0)


def cured_by_statements(sql, finding) -> None:
    for statement in finding["facts"]["statements"]:
        sql(statement)


def insert(sql, task: str, **values: str) -> None:
    columns = {"task": f"'{task}'", **values}
    sql(f"INSERT INTO pgqueue_jobs ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")


def found_until_cured(sql, name: str, plant: Plant, cure: Cure, exit_code: int) -> set[str]:
    """Plant a fault, and cure it; return the names of all findings in between."""
    sql(plant) if isinstance(plant, str) else plant(sql)
    found, code = diagnosis()
    finding = found.get(name)
    sql(cure) if isinstance(cure, str) else cure(sql, finding)
    assert finding, found
    assert finding["what"]
    assert finding["remedy"]
    assert (finding["level"], code) == (("error", 1) if exit_code else ("warning", 0))
    sql("DELETE FROM pgqueue_jobs")
    eventually(lambda: is_healthy(sql))
    return {*found}


def found(name: str) -> list[doctor.Finding]:
    return [finding for finding in findings() if finding.name == name]


def only(name: str) -> doctor.Finding:
    [finding] = found(name)
    assert finding.what
    assert finding.remedy
    return finding
