"""The list of dead jobs, and their pages."""

import pytest

from tests.support.admin_jobs import DEAD, dead

pytestmark = pytest.mark.django_db


def test_list_of_dead_jobs_shows_the_last_error_on_one_line(viewer):
    history = [
        {"kind": "failed", "error": "First", "message": "x"},
        {"kind": "failed", "error": "ValueError", "message": "no luck\nat all <b>", "attempt": 2},
    ]
    dead(errors=history, reason="exhausted")
    page = viewer.get(DEAD).content.decode()
    assert "ValueError: no luck</div>" in page
    assert "exhausted" in page
    assert "at all" not in page


@pytest.mark.parametrize("errors", [[], [{}], ["text"], {"error": "x"}, [None]], ids=str)
def test_odd_histories_do_not_break_the_pages(viewer, errors):
    job_id = dead(errors=errors)
    assert viewer.get(DEAD).status_code == 200
    assert viewer.get(f"{DEAD}{job_id}/change/").status_code == 200
