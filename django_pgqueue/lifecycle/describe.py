"""Put into words what a run has raised: for the history of its job, and for logs."""

import traceback
from typing import Any

from django_pgqueue.lifecycle.redact import Scrub, scrub_end

LONGEST_ERROR_BYTES = 8 * 1024
OWN_MODULES = "django_pgqueue.lifecycle."
LONGEST_TEXT = 16 * LONGEST_ERROR_BYTES  # of an exception, that is looked through for what is sensitive


def describe(error: BaseException, scrub: Scrub = str) -> dict[str, Any]:
    """Return one entry of a job's history, storable whatever the exception holds, of at most 8 KB.

    Args:
        scrub: takes what is sensitive out of a text.
    """
    kind = type(error)
    message = message_of(error)
    trace = trace_of(error)
    return {
        "error": _storable(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), 256),
        "message": _storable(scrub_end(scrub, message, LONGEST_TEXT), 1024),
        "traceback": _storable(scrub_end(scrub, trace, LONGEST_TEXT), LONGEST_ERROR_BYTES - 2048),
    }


def trace_of(error: BaseException) -> str:
    """Return the traceback of an exception, its text and its causes; empty where one of them cannot be printed.

    It begins where the code of the task does: the frames before are the same of every job.
    """
    frames = error.__traceback__
    while frames and frames.tb_frame.f_globals.get("__name__", "").startswith(OWN_MODULES):
        frames = frames.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    except Exception:  # noqa: BLE001 - an exception that cannot even be printed
        return ""


def message_of(error: BaseException) -> str:
    """Return the text of an exception, which may be one that raises when it is asked for."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot even be printed
        return "(its text cannot be read)"


def _storable(text: str, longest: int) -> str:
    """Return the end of ``text``, without what PostgreSQL cannot store."""
    kept = text if len(text) <= longest else f"[...]\n{text[-longest:]}"
    return kept.replace("\0", "\ufffd").encode(errors="replace").decode()
