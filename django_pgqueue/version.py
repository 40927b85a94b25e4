"""The version of the installed package, and whether it is this one that pip has installed."""

from importlib.metadata import Distribution, PackageNotFoundError, distribution

DISTRIBUTION = "django-pgqueue"
"""Name of the distribution: that of pyproject.toml, which tests compare."""

FOREIGN_PACKAGE = "pgqueue"
"""Package of another project, whose distribution on PyPI has the same name (0.9.0 to 0.9.3, 2019)."""


def installed() -> Distribution | None:
    """Return the metadata of the installed distribution of this name, which may be of another project."""
    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:  # used from a checkout that is not installed
        return None


def is_foreign(found: Distribution) -> bool:
    """Whether it is the other project: its metadata list the package, where those of this one list none."""
    return FOREIGN_PACKAGE in (found.read_text("top_level.txt") or "").split()


def version_of(found: Distribution | None) -> str:
    """Return the version of this package, or ``"0"`` if no metadata have it."""
    return "0" if found is None or is_foreign(found) else found.version


VERSION = version_of(installed())
