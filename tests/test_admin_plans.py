"""No page of the admin reads a table of jobs from end to end, or counts one to its end."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from benchmarks.crowd import Crowd, fill
from benchmarks.pages import Page, pages
from benchmarks.watch import small, watched

CROWD = Crowd(queued=20_000, dead=20_000, succeeded=20_000, stat_days=2)
MOST_COUNTED = 1000
"""Without a limit that says where counting ends: what runs, and what little there is of one job's kin."""


@pytest.mark.django_db
def test_no_page_reads_a_table_from_end_to_end(sql):
    with connection.cursor() as cursor:
        fill(CROWD, cursor.execute)
    sql("ANALYZE")
    client = Client()
    client.force_login(User.objects.create_superuser("zoe"))
    found = [fault for page in pages() for fault in faults(client, page, small())]
    assert not found, "\n".join(found)


def faults(client: Client, page: Page, ignored: set[str]) -> list[str]:
    with watched(plans=True, really=True) as queries:
        response = client.get(page.path)
    found = [f"{page.name}: {response.status_code}"] if response.status_code != 200 else []
    for query in queries:
        found += [f"{page.name} reads all of {name}: {query.sql}" for name in query.sequential(ignored)]
        if query.counted() > MOST_COUNTED:
            found.append(f"{page.name} counts {query.counted()} rows: {query.sql}")
    return found
