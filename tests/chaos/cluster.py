"""A PostgreSQL of the soak's own with a replica: it may be restarted at any time, and they may change places."""

from pathlib import Path

import psycopg

from tests.support import cluster

SETTINGS = """
max_connections = 300
log_min_messages = fatal
track_commit_timestamp = on
"""


class Cluster:
    """Started when made; safe for several threads, except ``restart``, ``fail_over`` and ``stop``.

    Args:
        folder: where the data will be; not there yet.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._pair = cluster.Cluster(folder.resolve(), SETTINGS)
        self._pair.start()

    @property
    def url(self) -> str:
        """The URL of the database, on whichever server takes writes, as django-environ reads it."""
        return self._pair.url()

    def address(self) -> tuple[str, int]:
        """Return where the server is that takes writes now."""
        return "127.0.0.1", self._pair.primary.port

    def connect(self) -> psycopg.Connection:
        host, port = self.address()
        return psycopg.connect(
            host=host, port=port, user="postgres", dbname="postgres", application_name="soak", autocommit=True
        )

    def restart(self, mode: str) -> None:
        """Stop the server as ``pg_ctl -m`` says, start it again, and wait until it answers.

        Args:
            mode: ``fast`` ends all sessions and shuts down in order; ``immediate`` is a crash, with recovery.
        """
        self._pair.primary.restart(mode)

    def fail_over(self) -> None:
        """Kill the server and promote its replica; make another replica, for which commits wait from then on."""
        self._pair.fail_over()
        self._pair.rejoin()

    def stop(self) -> None:
        self._pair.stop()
