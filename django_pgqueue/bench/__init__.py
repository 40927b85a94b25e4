"""Measurements of ``manage.py pgqueue_bench``."""
