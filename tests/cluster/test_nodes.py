"""Several nodes on one machine: a proxy on each, one killed under load, a new one used."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cluster.chaos.clips import Clip
from cluster.chaos.load import Load
from cluster.chaos.server import Server, free_port, wait_until

pytestmark = pytest.mark.slow

JOIN_SECONDS = 120
WORKER_PORT = "RAY_SERVE_WORKER_PROXY_HTTP_PORT"


class Nodes:
    """A Ray of several nodes; each has a proxy with a port of its own, as machines would.

    Attributes:
        head: where the head's proxy answers.
    """

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "resources": {"head": 1}, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.head_port = free_port()

    @property
    def address(self) -> str:
        """For `ray.init`."""
        return str(self._cluster.address)

    def add(self) -> tuple[Any, str]:
        """A worker node and the URL of its proxy."""
        port = free_port()
        os.environ[WORKER_PORT] = str(port)
        return self._cluster.add_node(num_cpus=1), f"http://127.0.0.1:{port}"

    def kill(self, node: Any) -> None:
        """SIGKILL of a node's raylet, which ends all its workers."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """Stop all nodes."""
        self._cluster.shutdown()


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """A head with room for half of the replicas, and no worker yet."""
    import ray
    from ray import serve

    monkeypatch.delenv(WORKER_PORT, raising=False)
    assert not ray.is_initialized(), "tests/cluster must run before tests with a Ray of their own"
    running = Nodes()
    ray.init(address=running.address, log_to_driver=False, configure_logging=False)
    yield running
    serve.shutdown()
    ray.shutdown()
    running.close()


def serves(url: str) -> bool:
    """Whether a proxy answers for the application."""
    try:
        return httpx2.get(f"{url}/health", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False


def test_a_node_dies_under_load_and_another_takes_its_place(
    nodes: Nodes,
    tiny_checkpoint: Path,
    clips: list[Clip],
    under_light_load: Callable[[Load], AbstractContextManager[None]],
) -> None:
    worker, worker_url = nodes.add()
    server = Server(
        nodes.head_port,
        model=str(tiny_checkpoint),
        dtype="float32",
        cpu_threads=1,
        decode_workers=1,
        model_replicas=2,
        model_replicas_per_node=1,
        preprocess_replicas=2,
        ingress_replicas=2,
    )
    server.start()
    wait_until(lambda: serves(worker_url), JOIN_SECONDS, "no proxy on the second node")

    load = Load(server.url, clips)
    with under_light_load(load):
        nodes.kill(worker)
        wait_until(lambda: server.replicas("Model") < 2, JOIN_SECONDS, "its replica still counts")
        noticed = time.monotonic()
        assert not serves(worker_url)
        _, new_url = nodes.add()
        wait_until(server.settled, JOIN_SECONDS, "the replicas have not come back")
        wait_until(lambda: serves(new_url), JOIN_SECONDS, "no proxy on the new node")
    # what the dead node's ingress held, and what was still sent there, may be lost; no more
    lost = [record for record in load.records if not record.ok]
    assert [record for record in lost if record.sent > noticed] == []
    assert sum(record.ok for record in load.records) > len(lost)
    print(f"{len(load.records)} requests, {len(lost)} lost")
