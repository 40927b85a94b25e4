"""Sentences as people read them in the admin: with links to what they speak of, for users who may see that."""

from typing import Any

from django.utils.html import format_html, format_html_join

from django_pgqueue.admin.parts.formatting import exact_moment
from django_pgqueue.admin.parts.links import Links
from django_pgqueue.insights.formatting import Ref, Sentence, whole
from django_pgqueue.jobs.redaction import Scrub

TABLES = {"job": ("job", "deadjob", "finishedjob")}
"""A job is asked for at the first page that the user may see: that knows in which table it is by now."""

NAMES = {"queue", "key", "task"}


class Teller:
    """Tells sentences to one user. Whatever stands for their parts is text, never markup.

    Args:
        scrub: takes what is sensitive out of a text.
    """

    def __init__(self, links: Links, scrub: Scrub = str) -> None:
        self.links = links
        self.scrub = scrub

    def sentence(self, one: Sentence) -> str:
        """Return a sentence with links."""
        parts = {name: self._part(part) for name, part in one.parts.items()}
        return format_html(one.words, "", **parts)  # something to put in, where there is nothing

    def ref(self, one: Ref) -> str:
        """Return a link, or the words where there is no page or the user may not see it."""
        words, address = self.scrub(one.words), self.page(one.kind, one.key)
        if address:
            return format_html('<a href="{}">{}</a>', address, words)
        return format_html("<code>{}</code>", words) if one.kind in NAMES else words

    def refs(self, many: list[Ref]) -> str:
        """Return several, with commas."""
        return format_html_join(", ", "{}", ((self.ref(one),) for one in many))

    def page(self, kind: str, key: Any) -> str:
        """Return the address of a page, or nothing."""
        return next(filter(None, (self.links.to_row(model, key) for model in TABLES.get(kind, (kind,)))), "")

    def _part(self, part: Any) -> str:
        if isinstance(part, Ref):
            return self.ref(part)
        if isinstance(part, list):
            return self.refs(part)
        if isinstance(part, int):
            return whole(part)
        if isinstance(part, str):
            return format_html("<bdi>{}</bdi>", self.scrub(part))  # one from right to left turns nothing else round
        return exact_moment(part)
