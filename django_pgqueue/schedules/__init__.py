"""Recurring jobs: declared in code or in the admin, kept in the table, enqueued when due."""
