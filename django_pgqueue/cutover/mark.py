"""What travels with a call that both sides get, so that its meaning does not change when the flag is flipped."""

from dataclasses import asdict, dataclass
from typing import Any

KEY = "pgqueue_cutover"
"""The keyword argument in which the old side gets the mark, and the key in the metadata of the job on the new one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of one call.

    Attributes:
        call: the id of its row.
        leads: the side that runs it, ``"old"`` or ``"new"``.
        compares: whether the other runs it too.
    """

    call: str
    leads: str
    compares: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def is_run_by(self, side: str) -> bool:
        return self.compares or self.leads == side
