"""The dashboard and the alert rules in docs/: that they ask for what is there, and that the rules do what they say."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from django_pgqueue.conf import Settings
from django_pgqueue.contrib.prometheus.families import OF_TABLES, OF_WORKERS
from django_pgqueue.states import MAX_LOST
from django_pgqueue.worker.isolation import is_suspect
from tests.support import needs
from tests.support.claimed import job
from tests.support.waiting import LONG_PATIENCE_SECONDS

DOCS = Path(__file__).parent.parent / "docs"
RULES = DOCS / "prometheus" / "rules.yml"
RULES_TEST = DOCS / "prometheus" / "rules_test.yml"
DASHBOARD = json.loads((DOCS / "grafana" / "pgqueue.json").read_text())

OF_SCRAPES = {"job", "instance"}
VARIABLES = {"$job": "pgqueue", "$queue": ".*", "$__rate_interval": "5m"}
SELECTION = re.compile(r"(pgqueue_\w+)\s*(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\bby \(([^)]*)\)")

LABELS = {
    suffixed: {*name.labels, *more, *OF_SCRAPES}
    for name in (*OF_TABLES, *OF_WORKERS)
    for suffixed, more in {
        "gauge": {name.name: ()},
        "counter": {f"{name.name}_total": ()},
        "histogram": {f"{name.name}_bucket": ("le",), f"{name.name}_sum": (), f"{name.name}_count": ()},
    }[name.kind].items()
}
"""Of each series that Prometheus has of a worker."""


def alerts() -> list[dict]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


def panels() -> list[dict]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[tuple[str, str, str]]:
    """Return all there are, each with where it stands and the text that names its labels."""
    targets = [(panel["title"], target) for panel in panels() for target in panel["targets"]]
    return [
        *((where, target["expr"], target["legendFormat"]) for where, target in targets),
        *((alert["alert"], alert["expr"], json.dumps(alert["annotations"])) for alert in alerts()),
    ]


def problems(expression: str, told: str) -> list[str]:
    """Say what an expression asks for that no worker tells."""
    found, labels = [], set(OF_SCRAPES)
    for name, selectors in SELECTION.findall(expression):
        labels |= LABELS.get(name, set())
        if name not in LABELS:
            found.append(f"there is no {name}")
            continue
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
        found += [f"{name} has no label {label}" for label in sorted(asked - LABELS[name])]
    grouped = {label.strip() for labels in GROUPING.findall(expression) for label in labels.split(",")}
    found += [f"no series has the label {label}" for label in sorted(grouped - labels)]
    left = grouped or labels
    named = re.findall(r"{{ ?(?:\$labels\.)?(\w+) ?}}", told)
    return found + [f"{label} is not left" for label in named if label not in left]


@pytest.mark.parametrize(("where", "expression", "told"), expressions())
def test_dashboard_and_rules_ask_for_what_workers_tell(where, expression, told):
    assert not problems(expression, told), where


@pytest.mark.parametrize(
    ("expression", "told", "problem"),
    [
        ("pgqueue_job", "", "there is no pgqueue_job"),
        ('rate(pgqueue_attempts_total{result="x"}[5m])', "", "pgqueue_attempts_total has no label result"),
        ("max by (task) (pgqueue_workers)", "", "no series has the label task"),
        ("max by (queue) (pgqueue_workers)", "{{instance}}", "instance is not left"),
        ("pgqueue_job_wait_seconds", "", "there is no pgqueue_job_wait_seconds"),
    ],
)
def test_what_is_not_announced_is_noticed(expression, told, problem):
    assert problems(expression, told) == [problem]


def test_dashboard_shows_each_metric_but_those_about_others():
    shown = {name for panel in panels() for target in panel["targets"] for name, _ in SELECTION.findall(target["expr"])}
    left_out = {name for name in LABELS if name not in shown and not name.endswith(("_bucket", "_sum", "_count"))}
    assert left_out == {"pgqueue_jobs_capped", "pgqueue_workflows_capped", "pgqueue_build_info"}


def test_dashboard_can_be_imported_beside_others():
    """By what Grafana wants: its own ids are none, panels do not overlap, the data source is chosen, not named."""
    assert DASHBOARD["id"] is None
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken = [cell for panel in DASHBOARD["panels"] for cell in cells(**panel["gridPos"])]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    sources = {json.dumps(target["datasource"]) for panel in panels() for target in [panel, *panel["targets"]]}
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "job", "queue"]
    assert all(panel["description"] for panel in panels())


def cells(x: int, y: int, w: int, h: int) -> list[tuple[int, int]]:
    return [(x + right, y + down) for right in range(w) for down in range(h)]


def test_first_panels_are_about_age():
    charts = [panel for panel in panels() if panel["type"] == "timeseries"]
    assert "pgqueue_oldest_runnable_seconds" in panels()[0]["targets"][0]["expr"]
    assert "pgqueue_oldest_runnable_seconds" in charts[0]["targets"][0]["expr"]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_each_alert_says_what_it_is_how_bad_and_what_to_do(alert):
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert {"summary", "description", "runbook"} == set(alert["annotations"])
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    heads = re.findall(r"^#+ (.+)$", (DOCS.parent / page).read_text(), flags=re.MULTILINE)
    assert anchor in {head.lower() for head in heads}


def alert_of(name: str) -> dict:
    [found] = [alert for alert in alerts() if alert["alert"] == name]
    return found


def test_heartbeat_is_late_for_the_alert_when_it_is_for_the_probe():
    """Before the default lease ends, so without a time for which it has to be late."""
    alert = alert_of("PgqueueHeartbeatLate")
    assert alert["expr"].strip().endswith(f"> {Settings.lease_seconds.default * 2 // 3}")
    assert "for" not in alert


def test_alert_on_a_dead_worker_says_when_its_jobs_run_alone_and_when_they_die():
    number = {1: "first", 2: "second", 3: "third"}
    alone = next(lost for lost in range(10) if is_suspect(job(lost=lost)))
    text = " ".join(alert_of("PgqueueWorkersDie")["annotations"]["description"].split())
    assert f"after the {number[alone]} loss alone in its process; after the {number[MAX_LOST]}," in text


def test_no_count_raises_an_alert():
    for alert in alerts():
        if alert["labels"]["severity"] == "page":
            assert not re.search(r"pgqueue_(dead_)?jobs\b[^>]*> [1-9]", alert["expr"]), alert["alert"]


@pytest.fixture
def promtool() -> str:
    return needs.promtool()


def run(*words) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONG_PATIENCE_SECONDS, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def test_rules_are_valid(promtool):
    assert f"{len(alerts())} rules found" in run(promtool, "check", "rules", str(RULES))


def test_rules_fire_when_they_should_and_only_then(promtool):
    run(promtool, "test", "rules", str(RULES_TEST))


def test_rules_that_never_fire_would_be_noticed(promtool, tmp_path):
    """Each by a test that expects it."""
    rules = yaml.safe_load(RULES.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = f"({rule['expr']}) and on () vector(1) > 2"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    shutil.copy(RULES_TEST, tmp_path)
    with pytest.raises(AssertionError) as failed:
        run(promtool, "test", "rules", str(tmp_path / RULES_TEST.name))
    assert set(re.findall(r"Pgqueue\w+", str(failed.value))) == {alert["alert"] for alert in alerts()}


def test_dashboard_asks_in_promql(promtool, tmp_path):
    """As recording rules, of which promtool knows whether they can be parsed."""
    rules = []
    for where, expression, _ in expressions():
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)  # noqa: PLW2901
        rules.append({"record": "x", "expr": expression, "labels": {"where": f"{where} {len(rules)}"}})
    path = tmp_path / "dashboard.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(promtool, "check", "rules", str(path))
