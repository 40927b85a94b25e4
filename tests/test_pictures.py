"""The pictures of the docs: diagrams as docs/pictures.py draws them, in the words of the code; the chart of peers."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from django_pgqueue.states import Status

DOCS = Path(__file__).parent.parent / "docs"


def pictures():
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAWN = {name: str(draw()) for name, draw in pictures().PICTURES.items()}


@pytest.mark.parametrize("name", DRAWN)
def test_picture_is_as_it_is_drawn_now(name):
    assert (DOCS / "explanation" / "images" / f"{name}.svg").read_text() == DRAWN[name], "run python docs/pictures.py"


@pytest.mark.parametrize("name", DRAWN)
def test_picture_is_in_a_page_with_words_for_who_does_not_see_it(name):
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    assert f"images/{name}.svg\n:alt: " in pages


def test_every_status_is_in_the_picture_of_statuses():
    words = " ".join(ET.fromstring(DRAWN["states"]).itertext())
    for status in Status:
        assert status.value in words


def drain(peer, jobs_per_second, *requirements, processes=1, keeps="nothing", is_finished=True):
    """Return an entry of what ``python -m benchmarks.peers --json`` writes."""
    return {
        "peer": peer,
        "keeps": keeps,
        "requirements": requirements,
        "processes": processes,
        "jobs_per_second": jobs_per_second,
        "runs": [{"is_finished": is_finished}] * 3,
    }


def test_chart_of_the_peers_names_each_with_its_figure(tmp_path):
    measured = [
        drain("django-pgqueue", 62_970.4),
        drain("django-pgqueue history", 45_506, keeps="history"),
        drain("django-pgqueue", 86_255, processes=2),
        drain("celery", 1_294, "celery[redis]==5.7.0", "hiredis==3.5.0", is_finished=False),
        drain("pg-boss", 41_953, "pg-boss@12.35.0", keeps="history"),
    ]
    file = tmp_path / "peers.json"
    file.write_text(json.dumps({"jobs": 20_000, "drains": measured}))
    subprocess.run([sys.executable, "-m", "benchmarks.curves", file, "--into", tmp_path], cwd=DOCS.parent, check=True)
    drawn = ET.parse(tmp_path / "peers.svg").iter("{http://www.w3.org/2000/svg}text")
    assert [text.text for text in drawn] == [
        *("celery 5.7.0", "pg-boss 12.35.0, history", "django-pgqueue, history", "django-pgqueue"),
        *("1,294, stopped", "41,953", "45,506", "62,970"),
        "jobs/s of one worker process, 20,000 jobs that do nothing, median of 3 runs",
    ]
