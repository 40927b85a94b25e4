"""The words of the package that are marked for translation, and the catalogues they stand in: ``make messages``.

Babel reads and writes; Django tells what its templates mark. A catalogue has neither dates nor line numbers: it changes
when words do, and never otherwise.
"""

import io
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babel.messages import Catalog, Message
from babel.messages.extract import extract_python
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_pgqueue"
CATALOGUES = sorted(PACKAGE.glob("locale/*/LC_MESSAGES/django.po"))

CONTEXT = (1, "c")
KEYWORDS: dict[str, Any] = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy", "gettext_noop")),
    **dict.fromkeys(("ngettext", "ngettext_lazy"), (1, 2)),
    **dict.fromkeys(("pgettext", "pgettext_lazy"), (CONTEXT, 2)),
    **dict.fromkeys(("npgettext", "npgettext_lazy"), (CONTEXT, 2, 3)),
}
ALWAYS = {None: None}
"""Of a call without an entry of its own: its first argument."""


class Messages(Catalog):
    """A catalogue whose header says what has to be there, and no more."""

    @property
    def mime_headers(self) -> list[tuple[str, str]]:
        return [
            ("Project-Id-Version", "django-pgqueue"),
            ("Language", str(self.locale_identifier)),
            ("MIME-Version", "1.0"),
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Transfer-Encoding", "8bit"),
            ("Plural-Forms", self.plural_forms),
        ]


def marked() -> Messages:
    """Return the words that are marked in code and templates, without translations."""
    found = Messages(charset="utf-8")
    for path in sorted(PACKAGE.rglob("*")):
        for message, context in _marked_in(path):
            found.add(message, locations=[(str(path.relative_to(ROOT)), 1)], context=context)
    return found


def _marked_in(path: Path) -> Iterator[tuple[Any, str | None]]:
    if path.suffix == ".py":
        source = path.read_text()
    elif path.suffix == ".html":  # what is left of it is calls between lines of X
        source = "\n".join(line.strip() for line in templatize(path.read_text(), origin=str(path)).splitlines())
    else:
        return
    for _line, function, arguments, _comments in extract_python(io.BytesIO(source.encode()), KEYWORDS, (), {}):
        yield _message(KEYWORDS[function] or (1,), arguments)


def _message(places: Any, arguments: Any) -> tuple[Any, str | None]:
    given = arguments if isinstance(arguments, tuple | list) else [arguments]
    context = given[0] if CONTEXT in places else None
    words = tuple(given[place - 1] for place in places if isinstance(place, int))
    return (words if len(words) > 1 else words[0]), context


def read(path: Path) -> Catalog:
    """Return a catalogue as it stands, its head to the letter: Babel would close up what is set in columns."""
    text = path.read_text(encoding="utf-8")
    catalogue = read_po(io.BytesIO(text.encode()), locale=path.parent.parent.name, charset="utf-8")
    catalogue.header_comment = "\n".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()))
    return catalogue


def brought_up_to_date(old: Catalog, words: Catalog) -> Messages:
    """Return a catalogue with all that is marked and nothing else; what is translated stays so."""
    new = Messages(locale=old.locale, header_comment=old.header_comment, charset="utf-8", fuzzy=False)
    for message in words:
        if message.id:
            before = old.get(message.id if isinstance(message.id, str) else message.id[0], message.context)
            new.add(
                message.id,
                _translation(message, before, new.num_plurals),
                locations=message.locations,
                user_comments=before.user_comments if before else (),
                context=message.context,
            )
    return new


def _translation(message: Message, before: Message | None, plurals: int) -> Any:
    if before is not None and message.pluralizable == before.pluralizable:
        return before.string
    return ("",) * plurals if message.pluralizable else ""


def as_po(catalogue: Catalog) -> bytes:
    """Return the text of a catalogue."""
    file = io.BytesIO()
    write_po(file, catalogue, width=0, include_lineno=False, ignore_obsolete=True)
    return file.getvalue()


def as_mo(catalogue: Catalog) -> bytes:
    """Return what Django reads."""
    file = io.BytesIO()
    write_mo(file, catalogue)
    return file.getvalue()


def compiled(path: Path) -> Path:
    """Return where the compiled form of a catalogue stands."""
    return path.with_suffix(".mo")


def untranslated(catalogue: Catalog) -> list[str]:
    """Return the words for which there is no translation, or not in all plural forms."""
    return [str(message.id) for message in catalogue if message.id and not _is_translated(message)]


def _is_translated(message: Message) -> bool:
    return all(message.string) if isinstance(message.string, tuple | list) else bool(message.string)


def main() -> int:
    """Bring all catalogues up to date and compile them; say what is left to be translated."""
    words, left = marked(), 0
    for path in CATALOGUES:
        catalogue = brought_up_to_date(read(path), words)
        path.write_bytes(as_po(catalogue))
        compiled(path).write_bytes(as_mo(catalogue))
        for text in untranslated(catalogue):
            print(f"{path.relative_to(ROOT)}: not translated yet: {text}")
            left += 1
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
