from django_pgqueue.conf import PgQueueSettings

INSTALLED_APPS = ["django.contrib.contenttypes", "django_pgqueue", "shop"]
SECRET_KEY = "types only"
USE_TZ = True
PGQUEUE: PgQueueSettings = {
    "SHARDS": {"queue_2": {"number": 1, "listen": "queue_2_direct", "queues": ["mail"], "slots": range(512)}},
    "RETENTION_DAYS": 7,
    "IMMEDIATE_ERRORS": "log",
    "JSON_ENCODER": None,
    "MIDDLEWARE": ["shop.receivers.Tenant"],
    "TASK_DEFAULTS": {"timeout": 300, "max_attempts": 5, "discard_on": LookupError},
}
MISSPELT: PgQueueSettings = {"RETENTION_DAY": 7}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportAssignmentType]
WRONG_CHOICE: PgQueueSettings = {"IMMEDIATE_ERRORS": "ignore"}  # type: ignore[typeddict-item]  # pyright: ignore[reportAssignmentType]
WRONG_OPTION: PgQueueSettings = {"TASK_DEFAULTS": {"timeot": 300}}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportAssignmentType]
