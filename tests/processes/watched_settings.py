"""Settings of workers whose spans and events go to files: one line each, when the process ends or before."""

import os
import threading
from pathlib import Path

import sentry_sdk
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from sentry_sdk.transport import Transport

from tests.settings import *  # noqa: F403

PLACE = Path(os.environ["WATCHED_IN"])


BESIDE = threading.Lock()  # events are written by the slots' threads, and a long one is more than one write


def append(name: str, text: str) -> None:
    with BESIDE, (PLACE / name).open("a") as file:
        file.write(text)


class ToFile(SpanExporter):
    def export(self, spans):
        append("spans", "".join(span.to_json(indent=None) + "\n" for span in spans))
        return SpanExportResult.SUCCESS


class EventsToFile(Transport):
    def capture_envelope(self, envelope):
        for item in envelope.items:
            if item.get_event():
                append("events", item.payload.get_bytes().decode() + "\n")


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ToFile(), schedule_delay_millis=3600_000))
trace.set_tracer_provider(provider)
sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=EventsToFile())
