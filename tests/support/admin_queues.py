"""Queues in the admin: addresses, an odd name, the form of limits."""

from django.contrib.admin.utils import quote

QUEUES = "/admin/pgqueue/queue/"
ODD = 'a, "b"/<i>_?'


def change(client, name, **data):
    return client.post(f"{QUEUES}{quote(name)}/change/", data, follow=True)
