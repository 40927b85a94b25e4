"""Connections to PostgreSQL, pipelines, errors, NOTIFY, and the loader of statements."""
