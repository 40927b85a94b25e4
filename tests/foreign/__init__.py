"""Packages of others, from PyPI, with this one: ``make foreign``. It is no installed app: no job may import jobs.py."""
