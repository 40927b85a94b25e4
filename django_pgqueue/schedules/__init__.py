"""Schedules by their names: run now, pause, resume, restore what the code has."""

from django_pgqueue.schedules.manage import pause, restore, resume, run

__all__ = ["pause", "restore", "resume", "run"]
