"""The pytest plugin, as projects load it."""

from importlib.metadata import entry_points

PLUGIN = () if "pgqueue" in entry_points(group="pytest11").names else ("-p", "pytest_django_pgqueue")
"""Where the package was installed before it had the plugin, that has to be named."""
