"""Roles with the rights that the documentation grants them."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.support.proxy import Detour
from tests.support.workers import database_url

HAND_OVER = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relname LIKE 'pgqueue\\_%' AND relkind IN ('r', 'p') LOOP
        EXECUTE format('ALTER TABLE %I OWNER TO shop_owner', name);
    END LOOP;
END $$
"""


@pytest.fixture
def login_as(sql, project) -> Iterator[Callable[[str], str]]:
    """Make one of the roles of the page on privileges, with what it grants and no more; return the URL to log in."""
    page = (project / "docs" / "how-to" / "privileges.md").read_text()
    made: list[str] = []

    def login(role: str) -> str:
        sql(f"DROP ROLE IF EXISTS {role}")
        sql(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        made.append(role)
        if role == "shop_owner":
            sql(HAND_OVER)
        [grants] = re.findall(rf"^```sql\n(GRANT [^`]* TO {role};\n)```$", page, flags=re.MULTILINE)
        sql(grants)
        url = urlsplit(database_url())
        return urlunsplit(url._replace(netloc=f"{role}:x@{url.netloc.rpartition('@')[2]}"))

    yield login
    for role in made:
        sql(f"REASSIGN OWNED BY {role} TO CURRENT_USER")
        sql(f"DROP OWNED BY {role}")
        sql(f"DROP ROLE {role}")


@pytest.fixture
def proxy(transactional_db) -> Iterator[Detour]:
    """Stand between a worker and its server; connections can be cut."""
    opened = Detour()
    yield opened
    opened.close()
