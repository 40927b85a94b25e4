"""Paths and addresses: the project, what was installed for the peers, the database server."""

import os
from functools import cache
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

PROJECT = Path(__file__).resolve().parents[2]
INSTALLED = PROJECT / ".peers"
NODE_FOLDER = INSTALLED / "node"
WORKERS = Path(__file__).with_name("workers")


@cache
def server() -> dict[str, str]:
    """Return how to reach the server that the benchmarks use, starting the embedded one if need be."""
    from benchmarks.settings import DATABASES

    settings = DATABASES["default"]
    return {key: str(settings[key]) for key in ("HOST", "PORT", "USER", "PASSWORD") if settings.get(key)}


def new_database(name: str) -> None:
    """Drop the database if it is there, and make it anew."""
    with connect("postgres") as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def drop_database(name: str) -> None:
    with connect("postgres") as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def let_rest(name: str) -> None:
    """Leave no work of the seeding behind: dead rows, missing statistics, dirty pages."""
    with connect(name) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def connect(name: str) -> psycopg.Connection:
    return psycopg.connect(conninfo(name), autocommit=True)


def conninfo(name: str) -> str:
    return make_conninfo(dbname=name, **{key.lower(): value for key, value in server().items()})


def environment(name: str) -> dict[str, str]:
    """Return the environment in which a peer finds its database, as URL and in libpq's variables."""
    from urllib.parse import urlencode

    query = {key.lower(): value for key, value in server().items()}
    variables = {f"PG{key}": value for key, value in server().items()}
    url = f"postgresql:///{name}?{urlencode(query)}"
    return {**os.environ, **variables, "PGDATABASE": name, "PEERS_DATABASE_URL": url}


def server_version() -> str:
    with connect("postgres") as connection:
        return str(connection.info.parameter_status("server_version"))
