"""What is wrong, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How bad it is."""

    ERROR = "error"  # jobs do not run, or will not soon
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        name: what kind of thing; stays the same from release to release.
        what: what was found, with its values, as a sentence.
        remedy: what to do, as a sentence.
        facts: the values, for programs.
    """

    name: str
    level: Level
    what: str
    remedy: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "name": self.name,
            "level": self.level,
            "what": self.what,
            "remedy": self.remedy,
            "facts": dict(self.facts),
        }
