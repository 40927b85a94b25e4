"""The page of keys that once() has taken."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_pgqueue.models import OnceKey

pytestmark = pytest.mark.django_db

PAGE = "/admin/pgqueue/oncekey/"


@pytest.fixture
def client() -> Client:
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_oncekey"))
    client = Client()
    client.force_login(user)
    OnceKey.objects.bulk_create([OnceKey(key=key) for key in ("paid:1", "paid:11", "<b>")])
    return client


def test_keys_are_listed_and_found_by_the_whole_key(client):
    page = client.get(PAGE).content.decode()
    assert "paid:11" in page
    assert "&lt;b&gt;" in page
    found = client.get(PAGE, {"q": "paid:1"}).content.decode()
    assert ">paid:1<" in found
    assert "paid:11" not in found


def test_keys_can_neither_be_added_nor_changed_nor_removed(client):
    assert client.get(f"{PAGE}add/").status_code == 403
    assert client.post(f"{PAGE}paid_3A1/delete/").status_code == 403
    assert OnceKey.objects.count() == 3


def test_page_needs_its_permission(client):
    User.objects.get().user_permissions.clear()
    assert client.get(PAGE).status_code == 403


@pytest.mark.parametrize("page", ["change", "history"])
def test_key_that_no_text_can_be_is_not_asked_for(client, page):
    assert client.get(f"{PAGE}%00/{page}/").status_code == 302
