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
    "pgqueue_workflows",
    "pgqueue_stages",
    "pgqueue_stage_edges",
    "pgqueue_stage_results",
    "pgqueue_stage_additions",
    "pgqueue_kept_calls",
}
