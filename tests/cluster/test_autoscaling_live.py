"""Autoscaling by work on a real Ray: replicas follow a step of load up and down, once each."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from cluster.chaos.clips import Clip, make_wav
from cluster.chaos.load import Load
from cluster.chaos.server import Server, free_port, wait_until

STEP_SECONDS = 240
"""A deadline: eight replicas start at once on few cores."""

CALLERS = 24


@dataclass
class Counts:
    """Replicas of the model over time, those that start included and those that stop not."""

    server: Server
    seen: list[int] = field(default_factory=list)

    def look(self) -> int:
        """Note the count where it has changed."""
        count = self.server.wanted("Model")
        if count and (not self.seen or self.seen[-1] != count):
            self.seen.append(count)
        return count

    def turns(self) -> int:
        """How often growth became shrinking, or back."""
        rises = [b > a for a, b in zip(self.seen, self.seen[1:], strict=False)]
        return sum(a != b for a, b in zip(rises, rises[1:], strict=False))


@contextmanager
def step_of_load(load: Load, peak: threading.Event) -> Iterator[None]:
    """Callers that never pause, until `peak` is set and their last request is answered."""

    thread = threading.Thread(target=lambda: asyncio.run(load.closed(CALLERS, peak.is_set)))
    thread.start()
    try:
        yield
    finally:
        peak.set()
        thread.join()


@pytest.fixture(scope="module")
def port() -> int:
    """Serve is started once; later applications come to the same port."""
    return free_port()


# what Serve's warning names instead has no effect in 2.60
@pytest.mark.filterwarnings("ignore:The `metrics_interval_s`:DeprecationWarning")
@pytest.mark.parametrize("most", [3, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.timeout(2 * STEP_SECONDS)
def test_replicas_follow_a_step(ray_with_gpus: None, port: int, most: int) -> None:
    server = Server(
        port,
        cpu_threads=1,
        decode_workers=2,
        cache_bytes=0,
        model_gpus=0.2,
        preprocess_gpus=0.2,
        model_max_replicas=most,
        model_target_audio_seconds=6,
        model_downscale_seconds=15,
        max_inflight_audio_seconds=2000,
        pass_seconds=5,
        request_timeout_seconds=300,
    )
    server.start()
    counts, load = Counts(server), Load(server.url, [Clip("20 s", make_wav(20.0, 0), "", 20.0)])
    assert counts.look() == 1
    begun = time.monotonic()
    with step_of_load(load, peak := threading.Event()):
        wait_until(lambda: counts.look() == most, STEP_SECONDS, f"not {most} replicas")
        grown = time.monotonic() - begun
        wait_until(lambda: server.replicas("Model") == most, STEP_SECONDS, "they do not run")
        peak.set()
    wait_until(lambda: counts.look() == 1 and server.settled(), STEP_SECONDS, "not back to one")
    assert counts.seen[0] == counts.seen[-1] == 1
    assert max(counts.seen) == most
    assert counts.turns() == 1
    assert [record.reason for record in load.records if not record.ok] == []
    print(f"{counts.seen} in {grown:.1f} s and {time.monotonic() - begun:.1f} s")
