"""OpenTelemetry traces of requests: Ray Serve makes the spans, this says where they go.

Serve opens a span in the proxy and one for each call of a replica, and passes a caller's
`traceparent` on. The usual variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, …) in the
environment of the Ray nodes say which collector gets them.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

EXPORTER = "serve_app.tracing:otlp_exporter"
PACKAGE = "opentelemetry-exporter-otlp-proto-http"


def otlp_exporter() -> "list[SpanProcessor]":
    """Spans in batches to a collector by OTLP over HTTP; what Serve's `tracing_config` names."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return [BatchSpanProcessor(OTLPSpanExporter())]


def tracing_config(ratio: float) -> dict[str, Any]:
    """Serve's `tracing_config` for a share of the requests from 0 to 1."""
    return {"enabled": ratio > 0, "exporter_import_path": EXPORTER, "sampling_ratio": ratio}


def has_exporter() -> bool:
    """Whether the exporter's package is installed."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False
