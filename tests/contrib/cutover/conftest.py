"""Fixtures of a switch from another queue."""

import pytest

from tests.support.cutover import OtherQueue


@pytest.fixture
def stage(settings):
    def set_stage(value):
        settings.PGQUEUE_CUTOVER = value

    return set_stage


@pytest.fixture
def other():
    return OtherQueue()
