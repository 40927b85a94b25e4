"""Tables of the app."""

TABLES = {
    "pgqueue_jobs",
    "pgqueue_dead_jobs",
    "pgqueue_succeeded_jobs",
    "pgqueue_queues",
    "pgqueue_queue_heads",
    "pgqueue_once_keys",
    "pgqueue_schedules",
    "pgqueue_workers",
    "pgqueue_stats",
    "pgqueue_bulk_actions",
}
