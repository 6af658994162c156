"""The servers under measurement: our application, the empty graph, and LitServe."""

import contextlib
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.environment import ROOT
from cluster.chaos.server import free_port

START_SECONDS = 300.0
POLL_SECONDS = 0.1


@dataclass(slots=True)
class RayServer:
    """One Ray Serve on this machine with several applications, each at `/NAME`.

    Everything shares the proxy and Ray's settings, which are those of `e2v serve`.
    """

    url: str
    local: Any

    def deploy(self, name: str, **settings: Any) -> str:
        """Our application; its base URL, once it answers `/health`."""
        import torch

        from serve_app import build
        from serve_app.settings import Settings

        if torch.cuda.is_available():
            # several applications share the card
            settings = {"model_gpus": 0.25, "preprocess_gpus": 0.05, **settings}
        return self._run(name, build(Settings(**settings)), health="/health")

    def deploy_floor(self) -> str:
        """The empty graph; its URL."""
        from benchmarks.floor_graph import build_floor

        return self._run("floor", build_floor(), health=None)

    def remove(self, name: str) -> None:
        """Take an application away; nothing happens where it is not there."""
        from ray import serve

        if name in serve.status().applications:
            serve.delete(name)

    def _run(self, name: str, application: Any, health: str | None) -> str:
        from ray import serve

        serve.run(application, name=name, route_prefix=f"/{name}")
        url = f"{self.url}/{name}"
        if health is not None:
            wait_until_ok(url + health)
        return url


@contextlib.contextmanager
def ray_server() -> Iterator[RayServer]:
    """Start Ray and Serve as `e2v serve` does; stop both at the end."""
    from serve_app.local_ray import LocalRay

    local = LocalRay(haproxy=False)
    port = free_port()
    try:
        local.start()
        from ray import serve

        serve.start(
            proxy_location="EveryNode",
            http_options={"host": "127.0.0.1", "port": port},
            logging_config={"enable_access_log": False, "log_level": "WARNING"},
        )
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        yield RayServer(f"http://127.0.0.1:{port}", local)
    finally:
        local.stop(lambda: False, drain=False)


@contextlib.contextmanager
def litserve_server(model: Path) -> Iterator[tuple[str, int]]:
    """The engine in LitServe: (its URL, its process id)."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.litserve_server", str(model), str(port)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until_ok(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/predict", process.pid
    finally:
        _end(process)


@contextlib.contextmanager
def e2v_server(*flags: str) -> Iterator[tuple[str, int]]:
    """`e2v serve` with `flags` on a free port: (its URL, its process id)."""
    port = free_port()
    command = [sys.executable, "-m", "client.cli", "serve", "--port", str(port), *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ok(f"{url}/health", process)
        yield url, process.pid
    finally:
        # it stops its own processes, and leaves no files behind
        process.terminate()
        process.wait()


def has_litserve() -> bool:
    """Whether LitServe is installed."""
    return find_spec("litserve") is not None


def wait_until_ok(url: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Ask `url` until it answers 200.

    Raises:
        RuntimeError: it does not in time, or its process has ended.
    """
    deadline = time.monotonic() + START_SECONDS
    with httpx2.Client(timeout=10) as client:
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx2.TransportError):
                if client.get(url).status_code == 200:
                    return
            if process is not None and process.poll() is not None:
                break
            time.sleep(POLL_SECONDS)
    raise RuntimeError(f"{url} does not answer")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything below it."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.terminate()
        for member in psutil.wait_procs(family, timeout=5)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
    process.wait()
