"""Configuration of Sphinx for these pages. No page needs the network, a database or Django's settings."""

from importlib.metadata import version as installed

project = "django-pgqueue"
author = "the django-pgqueue authors"
project_copyright = "the django-pgqueue authors"
release = version = installed("django-pgqueue")

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
nitpicky = True
myst_enable_extensions = ["deflist", "tasklist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"django-pgqueue {release}"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]

linkcheck_ignore = [r"https?://(127\.0\.0\.1|localhost|[\w.]*example\.com)\b"]
linkcheck_anchors_ignore_for_url = [r"https://github\.com/"]  # made by a script there
linkcheck_timeout = 20
