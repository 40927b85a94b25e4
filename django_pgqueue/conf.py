"""Settings under ``PGQUEUE``, typed, each with its default and unit. Read when asked for, never at import."""

from collections.abc import Sequence
from typing import Any, Final

from django.conf import settings as django_settings
from django.utils.module_loading import import_string

DEFAULTS: Final[dict[str, Any]] = {
    "DATABASE": "default",
    "MAINTENANCE_DATABASE": None,
    "LISTEN_DATABASE": None,
    "LEASE_SECONDS": 30,
    "MAX_ATTEMPTS": 10,
    "MAX_PAYLOAD_BYTES": 1024 * 1024,
    "ENCODER": None,
    "NOTIFY": True,
    "POLL_SECONDS": 1.0,
    "RETENTION_DAYS": 7,
    "DEAD_RETENTION_DAYS": None,
    "STATS_DAYS": 7,
    "VACUUM_DEAD_ROWS": 20_000,
    "STATEMENT_TIMEOUT_SECONDS": 30,
    "IMMEDIATE": False,
    "IMMEDIATE_ERRORS": "raise",
    "ADMIN_TIMEOUT_SECONDS": 2.0,
    "METRICS_TOKEN": None,
    "PREPARED_STATEMENTS": None,
    "TRACING": True,
    "SENSITIVE_PARAMETERS": (
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "api.?key",
        "private.?key",
        "credential",
        "authorization",
        "cookie",
        "session.?id",
        "card.?number",
        "pwd",
        "(?<![a-z])pass(?:code)?$",
        "access.?key",
        "bearer",
        "database.?url",
        *(f"(?<![a-z]){word}(?![a-z])" for word in ("pin", "otp", "cvv", "cvc", "iban", "ssn", "jwt", "dsn")),
    ),
}


class Settings:
    """One lazy property for each key of ``settings.PGQUEUE``; no cache, so ``override_settings`` works."""

    def _get(self, key: str) -> Any:
        return getattr(django_settings, "PGQUEUE", {}).get(key, DEFAULTS[key])

    @property
    def database(self) -> str:
        """Alias of the PostgreSQL database that holds the tables. Default: ``"default"``."""
        return str(self._get("DATABASE"))

    @property
    def maintenance_database(self) -> str:
        """Alias of the same database by a role that owns the tables. Default: that of ``DATABASE``.

        Used to make and drop partitions, to prune, and to VACUUM.
        """
        return str(self._get("MAINTENANCE_DATABASE") or self.database)

    @property
    def listen_database(self) -> str:
        """Alias of the same database without a pooler in between, for LISTEN. Default: that of ``DATABASE``."""
        return str(self._get("LISTEN_DATABASE") or self.database)

    @property
    def lease_seconds(self) -> int:
        """Seconds for which a silent worker keeps its jobs, 3 or more. Default: 30.

        Heartbeats are sent three times as often.
        """
        return int(self._get("LEASE_SECONDS"))

    @property
    def max_attempts(self) -> int:
        """Attempts of a job whose task does not say, 1 to 32767. Default: 10."""
        return int(self._get("MAX_ATTEMPTS"))

    @property
    def max_payload_bytes(self) -> int:
        """Largest size of a job's arguments as JSON, and of its result, in bytes. Default: 1 MiB."""
        return int(self._get("MAX_PAYLOAD_BYTES"))

    @property
    def encoder(self) -> type | None:
        """Dotted path of a ``json.JSONEncoder`` class for arguments and results. Default: plain JSON only."""
        path: str | type | None = self._get("ENCODER")
        encoder: type | None = import_string(path) if isinstance(path, str) else path
        return encoder

    @property
    def notify(self) -> bool:
        """Whether enqueueing wakes idle workers by NOTIFY; without it they poll. Default: True."""
        return bool(self._get("NOTIFY"))

    @property
    def poll_seconds(self) -> float:
        """Interval at which an idle worker process polls for work that was not announced, in seconds. Default: 1."""
        return float(self._get("POLL_SECONDS"))

    @property
    def retention_days(self) -> int:
        """Days for which finished jobs are kept; 0 keeps none. Default: 7."""
        return int(self._get("RETENTION_DAYS"))

    @property
    def dead_retention_days(self) -> int | None:
        """Days after which dead jobs are removed. Default: None, they stay until they are purged."""
        days: int | None = self._get("DEAD_RETENTION_DAYS")
        return days

    @property
    def stats_days(self) -> int:
        """Days for which the counts of each minute are kept, 1 or more. Default: 7."""
        return int(self._get("STATS_DAYS"))

    @property
    def vacuum_dead_rows(self) -> int:
        """From how many dead rows of the jobs table on workers VACUUM it; 0 leaves it to others. Default: 20,000."""
        return int(self._get("VACUUM_DEAD_ROWS"))

    @property
    def statement_timeout_seconds(self) -> int:
        """Upper bound of any statement of a worker's own, in seconds. Default: 30."""
        return int(self._get("STATEMENT_TIMEOUT_SECONDS"))

    @property
    def admin_timeout_seconds(self) -> float:
        """Upper bound of any statement of a page of the admin, in seconds. Default: 2."""
        return float(self._get("ADMIN_TIMEOUT_SECONDS"))

    @property
    def metrics_token(self) -> str | None:
        """The token with which a scraper reads the page of metrics without logging in. Default: None, no token does."""
        token: str | None = self._get("METRICS_TOKEN")
        return token

    @property
    def prepared_statements(self) -> bool | None:
        """Whether workers prepare their statements. Default: None, unless a pooler would mix them up with others'."""
        wanted: bool | None = self._get("PREPARED_STATEMENTS")
        return wanted

    @property
    def tracing(self) -> bool:
        """Whether jobs are traced where OpenTelemetry is installed and its SDK configured. Default: True."""
        return bool(self._get("TRACING"))

    @property
    def immediate(self) -> bool:
        """Whether jobs run in the process that enqueues them, after its commit; for tests. Default: False."""
        return bool(self._get("IMMEDIATE"))

    @property
    def immediate_errors(self) -> str:
        """Handling of errors of jobs that run so: ``"raise"`` them where the transaction commits, or only ``"log"``.

        Default: ``"raise"``.
        """
        return str(self._get("IMMEDIATE_ERRORS"))

    @property
    def sensitive_parameters(self) -> Sequence[str]:
        """Regular expressions, in any case, that names of sensitive arguments match. Default: ``password`` and more.

        Their values are left out of the admin, the log and the history.
        """
        expressions: Sequence[str] = self._get("SENSITIVE_PARAMETERS")
        return expressions


conf: Final = Settings()
