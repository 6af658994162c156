"""A Ray of its own per module: these tests kill parts of it. Processes below this one are its."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from cluster.chaos.clips import Clip, make_wav
from cluster.chaos.load import Background, Load
from cluster.chaos.server import Server, free_port, wait_until
from serve_app.ray_environment import NODE_ENVIRONMENT

DECLARED_GPUS = 2
LIGHT_PER_SECOND = 4.0
"""Requests per second that leave most of two cores to the replicas that start."""


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint of tiny shape in FunASR's layout."""
    from benchmarks.checkpoints import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("tiny"), "tiny")


@pytest.fixture(scope="session")
def clips() -> list[Clip]:
    """Short requests through every deployment."""
    return [
        Clip("1 s", make_wav(1.0, 0), "", 1.0),
        Clip("2 s 44.1 kHz", make_wav(2.0, 1, 44_100), "", 2.0),
        Clip("2 s speech", make_wav(2.0, 2), "?segmentation=speech&granularity=segment", 2.0),
    ]


@pytest.fixture(scope="module")
def ray_with_gpus() -> Iterator[None]:
    """A Ray that declares GPUs; torch sees none of them."""
    os.environ.update(NODE_ENVIRONMENT)
    import ray
    from ray import serve

    assert not ray.is_initialized(), "tests/cluster must run before tests with a Ray of their own"
    ray.init(
        address="local",
        num_cpus=8,
        num_gpus=DECLARED_GPUS,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    yield
    serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="module")
def server(ray_with_gpus: None, tiny_checkpoint: Path) -> Server:
    """The tiny model: two replicas of everything that callers hold on to."""
    running = Server(
        free_port(),
        model=str(tiny_checkpoint),
        dtype="float32",
        cpu_threads=1,
        decode_workers=1,
        model_replicas=2,
        ingress_replicas=2,
        model_gpus=0.2,
        preprocess_gpus=0.2,
    )
    running.start()
    return running


@pytest.fixture
def load(server: Server, clips: list[Clip]) -> Load:
    """Requests to the server, not yet sent."""
    return Load(server.url, clips)


@contextmanager
def light(load: Load) -> Iterator[None]:
    """A few requests per second, from before the body until the last one is answered."""
    with Background(load, LIGHT_PER_SECOND):
        wait_until(lambda: any(r.ok for r in list(load.records)), 60, "no request is answered")
        yield


@pytest.fixture
def under_light_load() -> Callable[[Load], AbstractContextManager[None]]:
    """`light`, for the tests."""
    return light
