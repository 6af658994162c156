"""A collector of the test's own gets the spans of a request, from the proxy to the model."""

import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from serving import SAMPLE, start

from serve_app.launch import LaunchError, LaunchPlan
from serve_app.launch_config import read_config
from serve_app.tracing import tracing_config

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPANS = {
    "POST /v1/audio/emotions",
    "replica_handle_request Preprocess run",
    "replica_handle_request Model score",
}
WAIT_SECONDS = 30.0


class Collector(ThreadingHTTPServer):
    """Receives OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on the console."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def test_a_callers_trace_goes_through_every_deployment(
    collector: Collector, tmp_path: Path
) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with start(tmp_path / "log", "--trace-ratio", "1", **variables) as server:
        answer = httpx2.post(
            f"{server.url}/v1/audio/emotions?denoise=true",
            content=SAMPLE.read_bytes(),
            headers={"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"},
            timeout=60,
        )
        assert answer.status_code == 200
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := names(collector)) >= SPANS:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        assert server.stop(signal.SIGTERM) == 0


def names(collector: Collector) -> set[str]:
    """Spans of the caller's trace."""
    return {span.name for span in collector.spans if span.trace_id.hex() == TRACE_ID}


def test_a_missing_exporter_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.launch.has_exporter", lambda: False)
    config = read_config(None)
    config.document["tracing_config"] = tracing_config(0.5)
    with pytest.raises(LaunchError, match="opentelemetry-exporter-otlp-proto-http"):
        LaunchPlan(config, None, False).check()
