"""The formats in which a registry is told: the text of Prometheus, or OpenMetrics for who asks for it."""

import gzip
from collections.abc import Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted


def exposed(registry: CollectorRegistry, headers: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """Return the answer to a request with these headers, and the headers that it has."""
    encode, content_type = choose_encoder(headers.get("Accept") or "")
    body, told = encode(registry), {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if gzip_accepted(headers.get("Accept-Encoding") or ""):
        body, told = gzip.compress(body, compresslevel=1), told | {"Content-Encoding": "gzip"}
    return body, told
