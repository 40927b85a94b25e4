"""Settings of workers that trace in the way that TRACING says: without OpenTelemetry, without its SDK, or with both."""

import os
import sys

from benchmarks.settings import *  # noqa: F403

if os.environ["TRACING"] == "absent":
    sys.modules["opentelemetry"] = None  # as where it is not installed
elif os.environ["TRACING"] == "traced":
    from opentelemetry import trace

    from benchmarks.tracing import provider

    trace.set_tracer_provider(provider())
