"""What the dashboard and the alerts watch is exported by a real node, Serve's own included."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import yaml

from cluster import dashboard
from cluster.chaos.clips import make_wav

ALERTS = Path(dashboard.__file__).with_name("alerts.yaml")

WITHOUT_OCCASION = {
    "ray_e2v_batch_failures_total",
    "ray_e2v_float32_retries_total",
    "ray_e2v_device_memory_bytes",
}
"""Exported once a batch failed, once a pass was repeated in float32, and where there is a GPU."""


@pytest.fixture(scope="module")
def server(deploy: Callable[..., str]) -> str:
    """The application on the bundled model, with a cache."""
    return deploy(cpu_threads=1)


def _watched() -> set[str]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    expressions = [rule["expr"] for group in groups for rule in group["rules"]]
    return set(re.findall(r"\bray_\w+", " ".join(expressions + dashboard.expressions())))


def _exported() -> set[str]:
    import ray

    port = ray.nodes()[0]["MetricsExportPort"]
    text = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    return set(re.findall(r"^(\w+)\{", text, re.MULTILINE))


def test_every_metric_that_is_watched_is_exported(server: str) -> None:
    expected = _watched() - WITHOUT_OCCASION
    assert any(name.startswith("ray_serve_") for name in expected)
    deadline = time.monotonic() + 60
    missing = expected
    while missing and time.monotonic() < deadline:
        # silence: a warning is counted as well
        body = make_wav(1.0, 0)[:44] + bytes(32_000)
        httpx2.post(f"{server}/v1/audio/emotions", content=body, timeout=60).raise_for_status()
        time.sleep(1)
        missing = expected - _exported()
    assert missing == set()
