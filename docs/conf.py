"""Configuration of Sphinx for these pages. They need neither the network nor a database.

``reference/api.md`` is made of the docstrings of the package, which is imported for it, as in a project.
"""

import os
import re
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from sphinx.addnodes import toctree
from sphinx.application import Sphinx

from django_pgqueue.version import VERSION

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django_pgqueue"],
    USE_TZ=True,
)
django.setup()

project = "django-pgqueue"
author = "the django-pgqueue authors"
project_copyright = "the django-pgqueue authors"
release = version = VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures are Python's, Django's and those of modules within

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_use_legacy_class_based = False
napoleon_custom_sections = ["Returns", "Yields"]  # sentences: their colons are no types
myst_enable_extensions = ["deflist", "tasklist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"django-pgqueue {release}"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .gp, .go"  # of a session only what is typed

linkcheck_ignore = [r"https?://(127\.0\.0\.1|localhost|[\w.]*example\.com)\b"]
linkcheck_anchors_ignore_for_url = [r"https://github\.com/"]  # made by a script there
linkcheck_timeout = 20


def setup(app: Sphinx) -> None:
    """Connect what corrects pages and docstrings before they are read."""
    app.connect("source-read", with_pictures_for_dark_pages)
    app.connect("autodoc-skip-member", without_fields_of_tuples)
    app.connect("autodoc-process-docstring", with_sentences_of_properties, priority=400)  # napoleon has 500
    app.connect("build-finished", write_llms_txt)


def with_pictures_for_dark_pages(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Show the dark one of a pair of pictures on a dark page; on GitHub the page has the light one."""
    pair = "".join(f"```{{image}} \\2-{mode}.webp\n:alt: \\1\n:class: only-{mode}\n```\n" for mode in ("light", "dark"))
    source[0] = re.sub(r"^!\[(.+)\]\((\S+)-light\.webp\)$", pair, source[0], flags=re.MULTILINE)


def without_fields_of_tuples(_app: Sphinx, _what: str, _name: str, member: Any, *_options: Any) -> bool | None:
    """Leave out fields that say of themselves only that they are fields; the docstring of the class has them."""
    return True if str(member.__doc__).startswith("Alias for field number") else None


def with_sentences_of_properties(
    _app: Sphinx, what: str, _name: str, _member: Any, _options: Any, lines: list[str]
) -> None:
    """Break the first line behind a colon, before which napoleon would expect a type."""
    if what in {"property", "attribute", "data"} and lines:
        first, colon, rest = lines[0].partition(": ")
        lines[:1] = [f"{first}:", rest] if colon else [first]


def write_llms_txt(app: Sphinx, failed: Exception | None) -> None:
    """Write the list of all pages, by the captions of the sidebar, in the format of https://llmstxt.org."""
    if failed or app.builder.name != "html":
        return
    lines = [f"# {project}", "", "> Background jobs for Django, in the PostgreSQL that the project already runs."]
    for tree in app.env.get_doctree("index").findall(toctree):
        lines += ["", f"## {tree['caption']}", ""]
        for _, page in tree["entries"]:
            lines.append(f"- [{app.env.titles[page].astext()}]({html_baseurl}{app.builder.get_target_uri(page)})")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n")
