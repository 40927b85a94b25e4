"""Users of the pages of jobs."""

import pytest
from django.test import Client

from tests.support.staff import user_with


@pytest.fixture
def viewer(db) -> Client:
    return user_with("view_job", "view_deadjob", "view_finishedjob")


@pytest.fixture
def staff(db) -> Client:
    return user_with("view_job", "view_deadjob", "run_job", "kill_job", "retry_deadjob")
