"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("django-pgqueue")
except PackageNotFoundError:  # used from a checkout that is not installed
    VERSION = "0"
