"""The diagrams of the docs are those that docs/pictures.py draws, and use the words of the code."""

import importlib.util
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
