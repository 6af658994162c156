"""One Ray cluster and one HTTP proxy for all integration tests; applications per module."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """Base URL of a running Serve instance, without an application yet."""
    import ray
    from ray import serve

    port = free_port()
    ray.init(
        num_cpus=8, include_dashboard=False, log_to_driver=False, configure_logging=False
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint of tiny shape in FunASR's layout."""
    from benchmarks.checkpoints import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("tiny"), "tiny")
