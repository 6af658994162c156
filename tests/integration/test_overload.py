"""Five times more than the server can do: quick refusals, the rest served, nothing left behind."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import numpy as np
import psutil
import pytest
from long_sounds import decoders, held_bodies, stereo_voices, wav_of

from benchmarks.checkpoints import write_checkpoint

URL = "/v1/audio/emotions"
CLIP_SECONDS = 10.0
MAX_REQUESTS = 64


@pytest.fixture(scope="module")
def server(deploy: Callable[..., str]) -> str:
    """The bundled model with a short queue: what waits for a second is too much."""
    return deploy(
        dtype="float32",
        cache_bytes=0,
        max_inflight_audio_seconds=20 * CLIP_SECONDS,
        max_inflight_requests=MAX_REQUESTS,
    )


@pytest.fixture(scope="module")
def clip() -> bytes:
    return wav_of(stereo_voices(CLIP_SECONDS)[:, 0])


@dataclass
class Outcome:
    """Statuses and seconds of all answers of one run of `seconds`."""

    seconds: float
    answers: list[tuple[int, float, str | None]] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        """Answers with 200 in each second."""
        return self.count[200] / self.seconds

    @property
    def count(self) -> Counter[int]:
        return Counter(status for status, _, _ in self.answers)

    def percentile(self, status: int, share: float) -> float:
        """Seconds until the answer, of those with a status."""
        taken = [seconds for code, seconds, _ in self.answers if code == status]
        return float(np.quantile(taken, share)) if taken else 0.0


async def _one(client: httpx2.AsyncClient, clip: bytes, outcome: Outcome) -> None:
    since = time.monotonic()
    answer = await client.post(URL, content=clip)
    took = time.monotonic() - since
    outcome.answers.append((answer.status_code, took, answer.headers.get("retry-after")))


def _client(server: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=server, timeout=120, limits=httpx2.Limits(max_connections=None)
    )


async def _closed_loop(server: str, clip: bytes, seconds: float) -> Outcome:
    """Eight callers, each with its next clip when the one before is answered."""
    outcome, since = Outcome(0), time.monotonic()
    async with _client(server) as client:

        async def caller() -> None:
            while time.monotonic() - since < seconds:
                await _one(client, clip, outcome)

        await asyncio.gather(*(caller() for _ in range(8)))
    outcome.seconds = time.monotonic() - since
    return outcome


async def _open_loop(server: str, clip: bytes, rate: float, seconds: float) -> Outcome:
    """A clip every 1 / rate seconds, whatever has become of those before."""
    outcome, since = Outcome(0), time.monotonic()
    async with _client(server) as client, asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, since + number / rate - time.monotonic()))
            group.create_task(_one(client, clip, outcome))
    outcome.seconds = time.monotonic() - since
    return outcome


def _memory_mib() -> float:
    """Resident memory of the application's processes."""
    processes = psutil.Process().children(recursive=True)
    names = [(p, " ".join(p.cmdline())) for p in processes if p.is_running()]
    ours = [p for p, name in names if "ServeReplica" in name or "engine.audio" in name]
    return sum(p.memory_info().rss for p in ours) / 2**20


def _overload(server: str, clip: bytes, seconds: float) -> tuple[Outcome, Outcome, float]:
    """What it can do, five times that, and the MiB that came with it."""
    asyncio.run(_closed_loop(server, clip, 1.0))
    able = asyncio.run(_closed_loop(server, clip, seconds))
    before = _memory_mib()
    # this process is also the client: more than it can send is no test of the server
    outcome = asyncio.run(_open_loop(server, clip, min(5 * able.goodput, 400.0), seconds))
    grown = _memory_mib() - before
    refused = outcome.percentile(429, 0.95)
    print(
        f"\ncapacity {able.goodput:.1f}/s (P95 {able.percentile(200, 0.95):.3f} s); offered "
        f"{len(outcome.answers) / outcome.seconds:.1f}/s: {dict(outcome.count)}, goodput "
        f"{outcome.goodput:.1f}/s, P95 of a refusal {refused:.3f} s, of an answer "
        f"{outcome.percentile(200, 0.95):.3f} s, memory {grown:+.0f} MiB"
    )
    return able, outcome, grown


def _check(able: Outcome, outcome: Outcome) -> None:
    assert set(outcome.count) == {200, 429}
    assert all(int(after or 0) >= 1 for status, _, after in outcome.answers if status == 429)


def _refusals_logged() -> Counter[str]:
    """Access lines with a 429, by what wrote them: `proxy` or `replica`."""
    from ray._private.worker import global_worker

    folder = Path(global_worker.node.get_session_dir_path()) / "logs" / "serve"
    found: Counter[str] = Counter()
    for path in folder.glob("*.log"):
        found[path.name.split("_")[0]] += path.read_text("utf-8").count(" status=429 ")
    return found


def test_overload_is_served_or_refused(server: str, clip: bytes) -> None:
    logged = _refusals_logged()
    able, outcome, grown = _overload(server, clip, 4.0)
    _check(able, outcome)
    # each has its line, also where the proxy repeated what the ingress had said
    time.sleep(1)  # log files are written behind the answer
    logged = _refusals_logged() - logged
    assert logged.total() == outcome.count[429]
    assert logged["proxy"] > logged["replica"] > 0
    assert outcome.goodput > able.goodput / 4
    assert grown < 150


async def _leave_after(server: str, body: bytes, seconds: float, callers: int) -> int:
    """How many callers left before their answer."""

    async def caller() -> bool:
        try:
            async with asyncio.timeout(seconds):
                await client.post(URL, content=body)
        except TimeoutError:
            return True
        return False

    async with _client(server) as client:
        return sum(await asyncio.gather(*(caller() for _ in range(callers))))


def test_clients_that_leave_take_their_work_with_them(server: str, clip: bytes) -> None:
    long = wav_of(np.tile(stereo_voices(10)[:, 0], 6))
    assert asyncio.run(_leave_after(server, long, 0.05, 200)) == 200
    deadline = time.monotonic() + 5
    while any(held_bodies(process) for process in decoders()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(max(0.0, deadline - time.monotonic()))
    # nothing is counted as in the house: so many fit in at once again
    outcome = Outcome(1.0)

    async def fill() -> None:
        async with _client(server) as client:
            small = wav_of(stereo_voices(0.1)[:, 0])
            await asyncio.gather(*(_one(client, small, outcome) for _ in range(MAX_REQUESTS)))

    asyncio.run(fill())
    assert outcome.count == {200: MAX_REQUESTS}


@pytest.mark.slow
def test_overload_of_a_model_of_real_size(
    deploy: Callable[..., str], clip: bytes, tmp_path: Path
) -> None:
    # the bundled model is so fast that five times its rate is the proxy's limit, not its own
    model = str(write_checkpoint(tmp_path / "base", "base"))
    server = deploy(
        model=model,
        dtype="float32",
        cache_bytes=0,
        max_inflight_audio_seconds=20 * CLIP_SECONDS,
        max_inflight_requests=MAX_REQUESTS,
    )
    _overload(server, clip, 20.0)
    able, outcome, grown = _overload(server, clip, 40.0)
    _check(able, outcome)
    assert outcome.goodput > 0.9 * able.goodput
    assert outcome.percentile(429, 0.95) < 0.2
    assert grown < 40
