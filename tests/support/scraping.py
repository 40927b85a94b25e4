"""A worker's page of metrics, as a scraper sees it."""

import gzip
import http.client
import subprocess
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from django_pgqueue.worker.metrics import CommandCounters, CommandMetrics
from tests.support.needs import promtool
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SECONDS

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Sheet:
    """The samples of one scrape."""

    def __init__(self, families) -> None:
        families = list(families)
        self.kinds = {family.name: family.type for family in families}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def of(self, name: str, **labels: str) -> float | None:
        """Return the one sample of this name and exactly these labels."""
        return self.samples.get((name, frozenset(labels.items())))

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of this name that have these labels."""
        return sum(
            value for (found, its), value in self.samples.items() if found == name and set(labels.items()) <= its
        )

    def sums(self) -> dict:
        """Return the samples that must never go down."""
        ends = ("_total", "_count", "_sum", "_bucket")
        return {key: value for key, value in self.samples.items() if key[0].endswith(ends)}


def parsed(text: str, content_type: str = "text/plain") -> Sheet:
    is_open = content_type.startswith("application/openmetrics-text")
    return Sheet((openmetrics.text_string_to_metric_families if is_open else text_string_to_metric_families)(text))


def must_lint(text: str) -> None:
    """Have promtool look at it, where there is one."""
    command = [promtool(), "check", "metrics"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


class Scraped:
    """A worker that answers with metrics."""

    def __init__(self, start_worker, *options: str, probes: bool = False, **environment: str) -> None:
        self.port = free_port()
        options += ("--health-port", str(self.port)) if probes else ()
        self.worker = start_worker("--metrics-port", str(self.port), *options, **environment)
        self.worker.wait_until_ready()

    def get(self, path: str = "/metrics", **headers: str) -> tuple[int, Mapping[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read()
            if response.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            return response.status, response.headers, body.decode()
        finally:
            connection.close()

    def scrape(self, **headers: str) -> Sheet:
        status, told, text = self.get(**headers)
        assert status == 200, text
        return parsed(text, told["Content-Type"])


def sheet_of(*collectors) -> Sheet:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return parsed(generate_latest(registry).decode())


def figures(made: CommandCounters, **more) -> CommandMetrics:
    known = {"processes": 2, "slots": 16, "busy": 3, "is_quiet": False, "pass_ages": {"heartbeat": 1.0}}
    return CommandMetrics(sums=made.sums(), **({"handed_over": {}} | known | more))
