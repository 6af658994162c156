"""One Ray cluster and one HTTP proxy for all integration tests; applications per module."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cluster.chaos.server import free_port
from serve_app.ray_environment import LARGE_BLOCKS_RETURN, NODE_ENVIRONMENT
from serve_app.settings import APP_NAME, Settings


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """Base URL of a running Serve instance, without an application yet."""
    os.environ.update(NODE_ENVIRONMENT | LARGE_BLOCKS_RETURN)
    import ray
    from ray import serve

    port = free_port()
    ray.init(
        address="local",
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
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


@pytest.fixture(scope="module")
def deploy(cluster: str) -> Iterator[Callable[..., str]]:
    """Deploys the application with the settings a module needs; says its base URL."""
    from ray import serve

    from serve_app import build

    def start(**settings: Any) -> str:
        serve.run(build(Settings(**settings)), name=APP_NAME, route_prefix="/")
        with httpx2.Client(base_url=cluster, timeout=60) as client:
            assert client.get("/health").status_code == 200
        return cluster

    yield start
    serve.delete(APP_NAME)
